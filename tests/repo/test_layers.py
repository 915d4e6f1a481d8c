"""Imports go downwards only, through the layers below: errors at the bottom, the command line on top."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "samebits"
LAYERS = ("errors", "numerics", "kernels", "models", "engine", "structured", "ledger", "audit", "gateway", "api", "cli")
# Modules beside the packages, and their layers. The package itself may offer anything that runs a model.
PLACES = {
    "llm": "structured",
    "inputs": "structured",
    "__init__": "structured",
    "__main__": "cli",
    "_core": "kernels",
    "counted": "errors",
}


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    source: str
    target: str

    @property
    def is_upwards(self) -> bool:
        return LAYERS.index(self.target) > LAYERS.index(self.source)


def layer_of(module: str) -> str:
    """Return the layer of a dotted module below `samebits`: its first part, or where PLACES puts that."""
    first = module.split(".")[0]
    layer = PLACES.get(first, first)
    assert layer in LAYERS, f"samebits.{module} is in no layer: add it to LAYERS or PLACES"
    return layer


def imported_modules(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name below `samebits` of every import, lazy ones included.

    `from samebits import x` counts as the module x where there is one, else as the package.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root, _, rest = alias.name.partition(".")
                if root == "samebits":
                    yield node.lineno, rest or "__init__"
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parts = [*base, *(node.module or "").split(".")] if node.module else base
            if not parts or parts[0] != "samebits":
                continue
            if len(parts) > 1:
                yield node.lineno, ".".join(parts[1:])
                continue
            for alias in node.names:
                is_module = (SOURCE / alias.name).is_dir() or (SOURCE / f"{alias.name}.py").is_file()
                if alias.name == "__version__":
                    continue
                yield node.lineno, alias.name if is_module or alias.name == "_core" else "__init__"


def imports_of(path: Path, text: str) -> list[Import]:
    inside = path.relative_to(SOURCE).with_suffix("").parts
    package = ["samebits", *inside[:-1]]
    source = layer_of(".".join(inside))
    return [
        Import(str(path.relative_to(SOURCE)), line, source, layer_of(target))
        for line, target in imported_modules(ast.parse(text), package)
    ]


def test_every_import_goes_down() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    assert len(paths) > 20, "the sources were not found"
    found = [i for path in paths for i in imports_of(path, path.read_text(encoding="utf-8"))]
    assert any(i.source == "kernels" and i.target == "numerics" for i in found), "no import was recognised"
    upwards = [f"{i.file}:{i.line}: {i.source} imports {i.target}" for i in found if i.is_upwards]
    assert not upwards, "\n".join(upwards)


def test_the_document_names_the_same_layers() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f"\n{' → '.join(LAYERS)}\n" in text
    assert set(re.findall(r"^\| `src/samebits/(\w+)/`", text, re.MULTILINE)) == {*LAYERS} - {"errors"}


def test_negative_control_every_form_of_upward_import_is_seen() -> None:
    path = SOURCE / "numerics" / "exact.py"
    for text in (
        "import samebits.engine",
        "import samebits.engine.scheduler as s",
        "from samebits.models import config",
        "from samebits import kernels",
        "from samebits import LLM",
        "from samebits.llm import LLM",
        "from .. import engine",
        "from ..kernels import reference",
        "def f():\n    from samebits.cli import main",
        "if False:\n    import samebits.cli",
    ):
        assert any(i.is_upwards for i in imports_of(path, text)), text
    for text in ("import numpy", "from samebits.errors import InputError", "from .contract import LANES"):
        assert not any(i.is_upwards for i in imports_of(path, text)), text


def test_numerics_and_kernels_need_only_numpy() -> None:
    """What defines bits depends on the standard library and numpy alone."""
    allowed = {"numpy", "samebits", "__future__"}
    for path in sorted([*(SOURCE / "numerics").rglob("*.py"), *(SOURCE / "kernels").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for root in {name.split(".")[0] for name in names}:
                assert root in allowed or root in sys.stdlib_module_names, f"{path.name} imports {root}"
