"""Specifications are values: checked when they are made, equal by content, told apart by digests."""

from __future__ import annotations

from typing import Any

import pytest

from samebits.errors import InputError
from samebits.structured import Choice, JsonObject, JsonSchema, Lark, Regex, spec_digest


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"items": value}
    return value


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: JsonSchema(""), "json_schema: is not a non-empty text"),
        (lambda: JsonSchema(b"{}"), "json_schema: is not a non-empty text"),  # type: ignore[arg-type]
        (lambda: JsonSchema("{"), "json_schema: is not JSON"),
        (lambda: JsonSchema('{"const": NaN}'), "json_schema: is not JSON: it holds NaN"),
        (lambda: JsonSchema("[]"), "json_schema: is not an object"),
        (lambda: JsonSchema('{"type": "null", "type": "object"}'), "the name 'type' twice"),
        (lambda: JsonSchema("[" * 100_000), "nested deeper than 100 levels"),
        (lambda: JsonSchema("{}" + " " * 300_000), "has 300002 characters"),
        (lambda: JsonSchema("{}", strict="yes"), "strict: 'yes' is not a bool"),  # type: ignore[arg-type]
        (lambda: JsonSchema.of({"const": float("nan")}), "json_schema: is not JSON"),
        (lambda: JsonSchema.of({"const": {1, 2}}), "json_schema: is not JSON"),
        (lambda: JsonSchema.of(nested(2000)), "nested deeper than 100 levels"),
        (lambda: JsonSchema.of(5), "json_schema: is not an object"),  # type: ignore[arg-type]
        (lambda: JsonSchema('{"const": "\ud800"}'), "lone surrogate"),
        (lambda: Regex(""), "regex: is not a non-empty text"),
        (lambda: Regex("a" * 20_000), "regex: has 20000 characters"),
        (lambda: Lark(None), "grammar: is not a non-empty text"),  # type: ignore[arg-type]
        (lambda: Choice(()), "choice: is not a list of texts"),
        (lambda: Choice("abc"), "choice: is not a list of texts"),  # type: ignore[arg-type]
        (lambda: Choice(("a", "")), r"choice[1]: is not a non-empty text"),
        (lambda: Choice(("a", "b", "a")), "choice: names a text twice"),
        (lambda: Choice(tuple(map(str, range(5000)))), "choice: is not a list"),
        (lambda: Choice(tuple("x" * 9000 + str(i) for i in range(40))), "choice: is too long"),
    ],
)
def test_bad_specifications_are_refused_with_their_field(make: Any, part: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert part in str(caught.value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["items"] = loop
    with pytest.raises(InputError, match="nested deeper"):
        JsonSchema.of(loop)


def test_the_limit_of_depth_is_exact() -> None:
    assert JsonSchema.of(nested(99)).document == nested(99)
    with pytest.raises(InputError):
        JsonSchema.of(nested(100))


def test_the_order_of_keys_is_kept() -> None:
    assert JsonSchema.of({"b": {"z": 1, "a": "é"}, "a": True}).text == '{"b":{"z":1,"a":"é"},"a":true}'


def test_numbers_keep_their_digits() -> None:
    assert str(JsonSchema('{"const": 0.10000000000000000001}').document["const"]) == "0.10000000000000000001"


def test_equal_by_content() -> None:
    assert JsonSchema.of({"a": 1}) == JsonSchema('{"a":1}')
    assert Choice(["a", "b"]) == Choice(("a", "b"))  # type: ignore[arg-type]
    assert len({JsonObject(), JsonObject(), Regex("a"), Regex("a"), Lark("a")}) == 3


def test_case_j04_digests_see_the_order_of_properties() -> None:
    a, b = JsonSchema('{"properties":{"a":{},"b":{}}}'), JsonSchema('{"properties":{"b":{},"a":{}}}')
    specs = [
        a,
        b,
        JsonSchema(a.text, strict=False),
        JsonObject(),
        Regex("a"),
        Lark("a"),
        Choice(("a",)),
        Choice(("b",)),
    ]
    assert len({spec_digest(s) for s in specs}) == len(specs)
    assert spec_digest(a) == spec_digest(JsonSchema(a.text))
