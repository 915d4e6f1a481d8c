"""Naming the keyword behind a message that names none."""

from __future__ import annotations

from typing import Any

from samebits.structured.culprit import MOST_TRIES, Culprit, find_culprit

CALLS: list[Any] = []


def complains_about(keyword: str, place: str, fault: str) -> Any:
    """A compiler that cannot do a keyword at a place."""

    def attempt(schema: Any) -> str:
        CALLS.append(schema)
        return fault if found(schema) else ""

    def found(part: Any) -> bool:
        if isinstance(part, list):
            return any(map(found, part))
        if not isinstance(part, dict):
            return False
        return (part.get("$comment") == place and keyword in part) or any(map(found, part.values()))

    return attempt


SCHEMA = {
    "$comment": "#",
    "properties": {
        "pattern": {"$comment": "#/properties/pattern", "pattern": "a", "maximum": 3},
        "b": {"$comment": "#/properties/b", "oneOf": [{"$comment": "#/properties/b/oneOf/0", "oneOf": []}]},
    },
    "$defs": {"r0": {"$comment": "#/definitions/x", "items": {"$comment": "#/definitions/x/items", "pattern": "b"}}},
}


def test_one_that_the_message_does_not_name() -> None:
    for keyword, place in (("maximum", "#/properties/pattern"), ("pattern", "#/definitions/x/items")):
        attempt = complains_about(keyword, place, "cannot be done")
        assert find_culprit(SCHEMA, "cannot be done", attempt) == Culprit(keyword, place)


def test_one_kind_of_many_that_the_message_names() -> None:
    fault = "pattern is too hard"
    for place in ("#/properties/pattern", "#/definitions/x/items"):
        assert find_culprit(SCHEMA, fault, complains_about("pattern", place, fault)) == Culprit("pattern", place)


def test_the_schema_is_left_as_it_is() -> None:
    before = repr(SCHEMA)
    find_culprit(SCHEMA, "oneOf", complains_about("oneOf", "#/properties/b", "oneOf"))
    assert repr(SCHEMA) == before


def test_none_is_found_where_no_single_one_is_to_blame() -> None:
    assert find_culprit(SCHEMA, "too large", lambda schema: "too large") is None


def test_tries_are_limited() -> None:
    CALLS.clear()
    many = {"properties": {f"p{i}": {"$comment": f"#/p{i}", "pattern": "a"} for i in range(500)}}
    find_culprit(many, "too large", lambda schema: (CALLS.append(schema), "too large")[1])
    assert len(CALLS) == MOST_TRIES
