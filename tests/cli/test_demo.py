"""What the demo shows of its rows."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from samebits.audit.repeat import Row
from samebits.cli.demo import _table, _verdict

README = Path(__file__).parents[2] / "README.md"
VENDOR = Row("vendor bf16", "vendor", 100, 2, 0.99, 20, 0.064, 3, 1, 32, 128, 1.0)
OURS = Row("samebits fp32", "fp32", 100, 1, 1.0, None, 0.0, 1, 1, 32, 278, 2.18)
ROWS = [
    VENDOR,
    OURS,
    replace(OURS, mode="samebits bf16", tokens_per_s=449, relative_speed=3.52),
    replace(OURS, mode="samebits int8", tokens_per_s=620, relative_speed=4.86),
]


def test_the_table_fits_a_plain_terminal_and_is_that_of_the_readme() -> None:
    text = io.StringIO()
    Console(file=text, width=80).print(_table(ROWS))
    shown = [line.rstrip() for line in text.getvalue().splitlines()[1:]]
    example = re.search(r"^```text\n(mode .*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert example is not None
    assert shown == example[1].splitlines()


def test_what_is_said_of_the_vendor_is_what_was_found() -> None:
    several, one_text = _verdict(ROWS)[0], _verdict([replace(VENDOR, unique=1), OURS])[0]
    same_bits = _verdict([replace(VENDOR, unique=1, logprob_variants=1), OURS])[0]
    assert "gave 2 different texts" in several
    assert "took 3 different values in bits" in one_text
    assert "the same bits each time" in same_bits
    assert "sooner or later" not in same_bits


def test_a_row_that_is_not_bit_equal_is_named() -> None:
    assert "FAILED: not bit-equal: samebits fp32." in _verdict([VENDOR, replace(OURS, logprob_variants=2)])
    assert not any("FAILED" in line for line in _verdict(ROWS))
