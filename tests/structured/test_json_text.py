"""Reading JSON exactly."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.structured.json_text import JsonTextError, check_depth, read_json, value_depth

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON, st.booleans())
def test_what_is_written_is_read(value: object, ascii_only: bool) -> None:
    import json

    text = json.dumps(value, ensure_ascii=ascii_only)
    assert read_json(text) == value
    depth = value_depth(value, 50)
    check_depth(text, depth)
    if depth:
        with pytest.raises(JsonTextError):
            check_depth(text, depth - 1)


def test_numbers_are_exact() -> None:
    assert read_json("[1, 1.0, 1e2, 123456789012345678901234567890]") == [1, 1, 100, 123456789012345678901234567890]
    assert isinstance(read_json("1.0"), Decimal)
    assert read_json("0.1") == Decimal("0.1") != 0.1
    assert read_json("9" * 5000) == Decimal("9" * 5000)


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "-Infinity", "[1,]", "'a'", "1 1", '{"a": 1, "a": 1}', "1e99999999999999999999"]
)
def test_what_is_not_json(text: str) -> None:
    with pytest.raises(JsonTextError):
        read_json(text)


def test_an_exponent_that_no_decimal_holds_can_be_taken() -> None:
    far = "9" * 30
    for text, value in (("-2.5e", "-2.5E"), ("-2.5E+", "-2.5E"), ("-2.5e-", "-2.5E-")):
        assert read_json(text + far, any_exponent=True) == Decimal(f"{value}{10**12}")
        assert read_json(f"{text}99", any_exponent=True) == Decimal(f"{value}99")
    assert read_json(f"0e{far}", any_exponent=True) == read_json(f"-0.0e-{far}", any_exponent=True) == 0


def test_brackets_in_strings_do_not_count() -> None:
    check_depth('["[[[[\\"[[[["]', 1)
    check_depth('["unclosed [[[', 1)
    with pytest.raises(JsonTextError):
        check_depth('["\\\\", [1]]', 1)
    check_depth('"' + "\\" * 1_000_001, 0)  # one string without an end: no time is lost in going back over it
