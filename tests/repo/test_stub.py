"""The stub of the C++ part says what the compiled module says: names, parameters, types, defaults."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from samebits import _core

STUB = Path(__file__).parents[2] / "src" / "samebits" / "_core.pyi"
ARRAYS = {
    "float32": "Floats",
    "float64": "Doubles",
    "int32": "Ints",
    "int64": "Longs",
    "uint32": "Counts",
    "uint8": "Bytes",
    "bool": "Bools",
}
ARRAY = re.compile(r"ndarray\[dtype=(\w+)[^\]]*\]")


def compiled_signature(function: Any, name: str = "") -> str:
    """Return nanobind's signature in the words of the stub."""
    [(text, _, defaults)] = function.__nb_signature__
    text = ARRAY.sub(lambda m: ARRAYS[m.group(1)], text).replace("samebits._core.", "")
    for i, default in enumerate(defaults or ()):
        text = text.replace(f"\\{i}", repr(default))
    text = re.sub(r"-> dict$", "-> dict[str, dict[str, str]]", text)  # C++ does not say what the dict holds
    return ast.unparse(ast.parse(text.replace("def (", f"def {name}(") + ": ..."))


def members(owner: Any, prefix: str = "") -> dict[str, str]:
    found = {}
    for name, value in vars(owner).items():
        if isinstance(value, type):
            found |= members(value, f"{name}.")
        elif isinstance(value, property):
            found[prefix + name] = compiled_signature(value.fget, name)
        elif hasattr(value, "__nb_signature__"):
            found[prefix + name] = compiled_signature(value)
    return found


def stated(body: list[ast.stmt], prefix: str = "") -> dict[str, str]:
    found = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found |= stated(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            found[prefix + node.name] = ast.unparse(node)
    return found


def test_the_stub_is_the_compiled_module() -> None:
    compiled = members(_core)
    assert len(compiled) > 20
    assert stated(ast.parse(STUB.read_text(encoding="utf-8")).body) == compiled


def test_negative_control_another_type_is_seen() -> None:
    text = STUB.read_text(encoding="utf-8")
    other = text.replace("residual: bool", "residual: int")
    assert other != text
    assert stated(ast.parse(other).body) != members(_core)
