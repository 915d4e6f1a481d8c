"""The constants of the contract's text are those of the C++ code, digit by digit.

A coefficient that is wrong in its last digit moves so few results that comparing results may miss it.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACT = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
LITERAL = re.compile(r"0x1\.?[0-9a-f]*p[+-]?\d+")


def literals(text: str) -> set[float]:
    return {float.fromhex(literal) for literal in LITERAL.findall(text)}


def section(number: str) -> str:
    return CONTRACT.split(f"### {number} ")[1].split("\n#")[0]


def test_exp() -> None:
    stated = literals(section("1.3"))
    assert len(stated) == 9
    assert stated <= literals((ROOT / "csrc" / "math-inl.h").read_text(encoding="utf-8"))


def test_log() -> None:
    stated = literals(section("1.4"))
    assert len(stated) == 2
    sources = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "csrc").glob("*.cc"))
    assert stated <= literals(sources)


def test_negative_control_a_wrong_digit_is_seen() -> None:
    assert not literals(section("1.3")) <= literals(section("1.3").replace("0x1.1239e2p-7", "0x1.1239e4p-7"))
