"""When oneOf is anyOf: only if no value satisfies two options, shown by search over many values."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from samebits.errors import OutputInvalid
from samebits.structured import JsonSchema, validate
from samebits.structured.disjoint import MOST_OPTIONS, all_disjoint
from samebits.structured.references import References

CAT = {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}
OPEN_DOG = {"type": "object", "properties": {"kind": {"const": "dog"}}}
ROOT = {"$defs": {"cat": CAT, "kinds": {"const": "cat"}}}
SCHEMAS: tuple[Any, ...] = (
    CAT, DOG, OPEN_DOG, {k: v for k, v in CAT.items() if k != "type"}, {"$ref": "#/$defs/cat"},
    {"type": "object", "properties": {"kind": {"$ref": "#/$defs/kinds"}}, "required": ["kind"]},
    {"type": "object", "properties": {"kind": {"enum": ["cow", "dog"]}}, "required": ["kind"]},
    {"type": "object"}, {"type": "null"}, {"type": "integer"}, {"type": "number"}, {"type": ["null", "string"]},
    {"const": 1}, {"const": 1.0}, {"const": True}, {"enum": [0, False]}, {"enum": [[1], "a"]}, {"const": None},
    {}, True, False, {"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 4},
)  # fmt: skip
VALUES = (
    None, True, False, 0, 1, 1.5, 4, 5, "a", [], [1], {},
    {"kind": "cat"}, {"kind": "dog"}, {"kind": "cow"}, {"kind": 1},
)  # fmt: skip


def is_valid(value: Any, schema: Any) -> bool:
    whole = {"allOf": [schema]} | ROOT
    try:
        validate(json.dumps(value), JsonSchema.of(whole))
    except OutputInvalid:
        return False
    return True


def seen(a: Any, b: Any) -> bool:
    return all_disjoint([a, b], References(ROOT), "#")


def test_what_is_seen_as_disjoint_is() -> None:
    found = 0
    for a, b in itertools.combinations_with_replacement(SCHEMAS, 2):
        if seen(a, b):
            found += 1
            both = [v for v in VALUES if is_valid(v, a) and is_valid(v, b)]
            assert not both, (a, b, both)
        assert seen(a, b) == seen(b, a)
    assert found > 80, "not exercised: hardly a pair is seen as disjoint"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (CAT, DOG),
        (CAT, OPEN_DOG),
        ({"$ref": "#/$defs/cat"}, DOG),
        ({"type": "null"}, CAT),
        ({"const": 1}, {"const": True}),
    ],
)
def test_these_are_seen(a: Any, b: Any) -> None:
    assert seen(a, b)


def test_control_these_are_not() -> None:
    typeless = {k: v for k, v in CAT.items() if k != "type"}  # a number satisfies it
    for a, b in (
        (typeless, {k: v for k, v in DOG.items() if k != "type"}),
        (OPEN_DOG, OPEN_DOG),
        ({"const": 1}, {"const": 1.0}),
    ):
        assert not seen(a, b)


def test_too_many_options_are_not_looked_at() -> None:
    options = [{"const": i} for i in range(MOST_OPTIONS + 1)]
    assert all_disjoint(options[:-1], References({}), "#")
    assert not all_disjoint(options, References({}), "#")
