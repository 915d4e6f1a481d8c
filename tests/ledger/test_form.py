"""What canonical JSON loses comes back: order of members, numbers as they were written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from tests.ledger.test_canonical import VALUES

from samebits.ledger.canonical import canonical
from samebits.ledger.form import lost, restored
from samebits.ledger.spelled import number


@given(VALUES)
def test_a_value_comes_back_as_it_was_written(value: Any) -> None:
    form = json.loads(canonical(lost(value)))
    again = restored(json.loads(canonical(value)), form)
    assert json.dumps(again) == json.dumps(value)


def test_negative_control_canonical_json_alone_is_another_value() -> None:
    value = {"b": 1.0, "a": [2**63, -0.0], "é": {"y": 1, "x~/": 2e300}}
    assert json.dumps(json.loads(canonical(value))) != json.dumps(value)
    assert json.dumps(restored(json.loads(canonical(value)), lost(value))) == json.dumps(value)
    assert lost({"a": 1, "b": [{"c": 1.5}]}) == {"order": [], "numbers": {}}


def test_digits_beyond_a_double_come_back() -> None:
    value = {"a": [number("0.1000000000000000055511151231257827"), number("1e-400")], "b": number("0.5")}
    form = json.loads(canonical(lost(value)))
    assert form["numbers"] == {"/a/0": "0.1000000000000000055511151231257827", "/a/1": "1e-400"}
    again = restored(json.loads(canonical(value)), form)
    assert [item.text for item in again["a"]] == ["0.1000000000000000055511151231257827", "1e-400"]
    assert (type(again["b"]), again["b"]) == (float, 0.5)


def test_a_form_of_another_value_is_refused() -> None:
    with pytest.raises(ValueError, match="another value"):
        restored({"a": 1}, lost({"b": 1, "a": 2}))
