"""Recursion: which definitions have an end, and how deep references go."""

from __future__ import annotations

from typing import Any

import pytest

from samebits.errors import InputError
from samebits.structured.base_case import MAX_CHAIN, check_base_cases, check_chains
from samebits.structured.normalise import normalise

LOOP = {"$ref": "#/$defs/a"}


def endless(schema: Any, **definitions: Any) -> str:
    """Where a base case is missing; empty if nowhere."""
    document = schema | {"$defs": {"a": {"$ref": "#/$defs/a"}} | definitions}
    try:
        check_base_cases(normalise(document, strict=True))
    except InputError as error:
        return str(error).split(" at ")[1].split(" has ")[0]
    return ""


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"$ref": "#/$defs/a"}, "#/$defs/a"),
        ({"anyOf": [{"type": "null"}, LOOP]}, "#/$defs/a"),  # it would be offered, and lead nowhere
        ({"type": "object", "properties": {"x": LOOP}}, "#/$defs/a"),
        ({"$ref": "#"}, "#"),
        ({"type": "array", "items": {"$ref": "#"}}, ""),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "#"),
        ({"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#"}], "minItems": 1}, ""),
        ({"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#"}], "minItems": 2}, "#"),
        ({"type": "object", "properties": {"x": {"$ref": "#"}}}, ""),
        ({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}, "#"),
        ({"type": "object", "additionalProperties": {"$ref": "#"}, "required": ["x"]}, "#"),
        ({"type": "object", "additionalProperties": {"$ref": "#"}}, ""),
        ({"type": ["object", "null"], "properties": {"x": {"$ref": "#"}}, "required": ["x"]}, ""),
        ({"properties": {"x": {"$ref": "#"}}, "required": ["x"]}, ""),  # another type is an end as well
        ({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]}, ""),
        ({"allOf": [{"type": "array"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]}, "#"),
        ({"anyOf": [False, {"$ref": "#"}]}, "#"),
    ],
)
def test_base_cases(schema: Any, place: str) -> None:
    assert endless(schema) == place


def test_an_end_is_found_through_many_definitions() -> None:
    """In the order that needs the most passes if all are looked at in turn."""
    count = 900
    forwards = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(count)} | {f"d{count}": {"type": "null"}}
    assert endless({"anyOf": [{"$ref": f"#/$defs/{n}"} for n in forwards]}, **forwards) == ""
    backwards = {f"d{i}": {"$ref": f"#/$defs/d{i - 1}"} for i in range(1, count)} | {"d0": {"type": "null"}}
    assert endless({"anyOf": [{"$ref": f"#/$defs/{n}"} for n in backwards]}, **backwards) == ""
    cut = backwards | {"d0": {"$ref": f"#/$defs/d{count - 1}"}}
    assert endless({"anyOf": [{"$ref": f"#/$defs/{n}"} for n in cut]}, **cut) != ""


def chain(links: int) -> Any:
    parts: dict[str, Any] = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(links)}
    return normalise({"$ref": "#/$defs/d0", "$defs": parts | {f"d{links}": {}}}, strict=True)


def test_chains_are_limited() -> None:
    check_chains(chain(MAX_CHAIN // 4))
    with pytest.raises(InputError, match=f"more than {MAX_CHAIN} schemas deep"):
        check_chains(chain(MAX_CHAIN))


def test_many_references_side_by_side_are_no_chain() -> None:
    parts = {f"d{i}": {"type": "null"} for i in range(900)}
    check_chains(normalise({"anyOf": [{"$ref": f"#/$defs/{n}"} for n in parts], "$defs": parts}, strict=True))


def test_a_cycle_is_followed_once() -> None:
    check_chains(normalise({"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}, strict=True))
