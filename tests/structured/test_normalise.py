"""What cannot be enforced is refused by the name of the keyword and its place; what says nothing is let pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from writers import COMPILER, accepts, constraint, refusal

from samebits.structured import JsonSchema
from samebits.structured.json_text import read_json
from samebits.structured.keywords import ANNOTATIONS, FORMATS, UNSUPPORTED
from samebits.structured.normalise import normalise

OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": False}
VALUES: dict[str, Any] = {
    "not": {}, "if": {}, "then": {}, "else": {}, "contains": {}, "propertyNames": {}, "unevaluatedItems": False,
    "unevaluatedProperties": False, "dependentRequired": {}, "dependentSchemas": {}, "dependencies": {},
    "minContains": 1, "maxContains": 1, "uniqueItems": True, "$dynamicRef": "#", "$recursiveRef": "#",
    "$recursiveAnchor": "x",
}  # fmt: skip


def test_every_unsupported_keyword_has_a_value_here() -> None:
    assert set(VALUES) == UNSUPPORTED


@pytest.mark.parametrize("keyword", sorted(UNSUPPORTED))
def test_an_unsupported_keyword_is_refused_with_its_place(keyword: str) -> None:
    schema = OBJECT | {"properties": {"a/b": {"items": {keyword: VALUES[keyword]}}}}
    assert refusal(schema).startswith(f"json_schema: {keyword} at #/properties/a~1b/items cannot be enforced")


@pytest.mark.parametrize("keyword", sorted(UNSUPPORTED))
def test_without_strict_it_is_left_to_validation_and_said(keyword: str) -> None:
    grammar = COMPILER.compile(JsonSchema.of({"items": {keyword: VALUES[keyword]}}, strict=False))
    assert grammar.unenforced == (f"{keyword} at #/items",)
    assert COMPILER.compile(JsonSchema.of({"items": {}}, strict=False)).unenforced == ()


def test_a_word_that_is_no_keyword_is_refused_and_an_extension_is_not() -> None:
    assert "minitems at # is not a keyword" in refusal({"type": "array", "minitems": 2})
    assert "const at # is not a keyword of this draft" in refusal(
        {"$schema": "http://json-schema.org/draft-04/schema#", "const": 2}
    )
    assert "prefixItems" in refusal({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [True]})
    assert accepts(constraint({"type": "null", "x-order": 3, "uniqueItems": False}), "null")


def test_annotations_say_nothing() -> None:
    odd: dict[str, Any] = dict.fromkeys(sorted(ANNOTATIONS), "x")
    odd |= {"$defs": {}, "definitions": {}, "$vocabulary": {}, "contentSchema": {}}
    odd |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/x"}
    odd |= {"deprecated": True, "readOnly": True, "writeOnly": True, "examples": [1], "$dynamicAnchor": "y"}
    assert accepts(constraint({"type": "null"} | odd), "null")
    assert not accepts(constraint({"type": "null"} | odd), "1")


@pytest.mark.parametrize("name", ["04", "06", "07"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_old_drafts(name: str, scheme: str) -> None:
    head = {"$schema": f"{scheme}://json-schema.org/draft-{name}/schema#"}
    pair = head | {"type": "array", "items": [{"type": "null"}], "additionalItems": False}
    assert accepts(constraint(pair), "[null]")
    assert not accepts(constraint(pair), "[1]")
    assert not accepts(constraint(pair), "[null, null]")
    alone = head | {
        "type": "array",
        "items": {"type": "null"},
        "additionalItems": False,
    }  # says nothing beside a schema
    assert accepts(constraint(alone), "[null, null]")
    # What stands beside a reference says nothing in these drafts.
    beside = head | {"items": {"$ref": "#/definitions/a", "maximum": 3}, "definitions": {"a": {"type": "integer"}}}
    assert accepts(constraint(beside), "[7]")
    assert not accepts(constraint(beside | {"$schema": "https://json-schema.org/draft/2020-12/schema"}), "[7]")
    if name == "04":
        assert not accepts(constraint(head | {"type": "integer", "minimum": 3, "exclusiveMinimum": True}), "3")
        assert accepts(constraint(head | {"type": "integer", "minimum": 3, "exclusiveMinimum": False}), "3")


def test_an_unknown_draft_is_refused() -> None:
    assert "Unknown meta-schema: 'http://example.org/my-own'" in refusal({"$schema": "http://example.org/my-own"})
    with pytest.raises(ValueError, match=r"\$schema at # is 'http://example.org/my-own', which is unknown"):
        normalise({"$schema": "http://example.org/my-own"}, strict=True)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_formats_are_enforced(name: str) -> None:
    good = {
        "date-time": "2024-02-29T23:59:59Z", "date": "2024-02-29", "time": "23:59:59+01:00", "duration": "P3D",
        "email": "a.b@example.org", "hostname": "example.org", "ipv4": "127.0.0.1", "ipv6": "::1",
        "uuid": "123e4567-e89b-12d3-a456-426614174000", "uri": "https://example.org/a?b#c",
    }  # fmt: skip
    assert accepts(constraint({"type": "string", "format": name}), json.dumps(good[name]))
    assert not accepts(constraint({"type": "string", "format": name}), '"no such thing"')


def test_other_formats_are_refused() -> None:
    assert "format 'iri' at #/items cannot be enforced" in refusal({"items": {"format": "iri"}})


# ---- references ------------------------------------------------------------------------------------------------------


def test_references_of_every_kind() -> None:
    schema = {
        "$id": "https://example.org/root.json",
        "type": "array",
        "prefixItems": [
            {"$ref": "#/$defs/a~1b~0c%25"},
            {"$ref": "#/prefixItems/0"},
            {"$ref": "https://example.org/root.json#/$defs/list/prefixItems/0"},
            {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
        ],
        "items": False,
        "$defs": {"a/b~c%": {"type": "integer"}, "list": {"prefixItems": [{"const": "x"}]}},
    }
    assert accepts(constraint(schema), '[1, 2, "x", [3, 4, "x", null]]')
    assert not accepts(constraint(schema), '["x"]')
    assert not accepts(constraint(schema), '[1, 2, "y"]')


def test_what_cannot_be_reached_does_not_matter() -> None:
    schema = {"type": "null", "$defs": {"hard": {"not": {}}, "loop": {"$ref": "#/$defs/loop"}}}
    assert accepts(constraint(schema), "null")
    assert "not at #/$defs/hard" in refusal(schema | {"anyOf": [{"$ref": "#/$defs/hard"}]})


@pytest.mark.parametrize(
    ("reference", "part"),
    [
        ("#/$defs/none", "$ref"),
        ("https://example.org/other.json", "$ref leads out of the schema"),
        ("other.json", "$ref leads out of the schema"),
        ("#anchor", "Use pointers"),
        ("#/$defs/own/items", "$id of its own"),
    ],
)
def test_references_that_lead_elsewhere_are_refused(reference: str, part: str) -> None:
    parts = {"own": {"$id": "https://example.org/own", "items": {}}, "named": {"$anchor": "anchor"}}
    assert part in refusal({"$ref": reference, "$defs": parts})


def test_an_identifier_inside_is_refused() -> None:
    assert "$id at #/items" in refusal({"items": {"$id": "https://example.org/x"}})


# ---- numbers (case J09) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyword", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
@pytest.mark.parametrize("value", [9223372036854775807, 2**63, 2**64, 2**53 + 1, -(2**53) - 1, 10**400])
def test_case_j09_bounds_that_would_be_rounded_are_refused(keyword: str, value: int) -> None:
    if keyword == "multipleOf" and value < 0:
        value = -value
    message = refusal({"properties": {"n": {"type": "integer", keyword: value}}})
    assert f"{keyword} at #/properties/n is {str(value)[:40]}, beyond ±2^53" in message


def test_case_j09_the_largest_bounds_are_exact() -> None:
    for bound in (2**53, -(2**53), 2**53 - 1):
        schema = {"type": "integer", "minimum": bound, "maximum": bound}
        assert accepts(constraint(schema), str(bound))
        assert not accepts(constraint(schema), str(bound + 1))
        assert not accepts(constraint(schema), str(bound - 1))


def test_digits_that_no_float_holds_are_refused() -> None:
    assert "no binary64 holds" in refusal_of_text('{"minimum": 0.1000000000000000055511151231257827}')
    assert "no binary64 holds" in refusal_of_text('{"enum": [[{"a": 0.30000000000000000001}]]}')
    assert accepts(COMPILER.compile(JsonSchema('{"const": 0.1}')).constraint(), "0.1")


def refusal_of_text(text: str) -> str:
    with pytest.raises(ValueError, match="json_schema") as caught:
        COMPILER.compile(JsonSchema(text))
    return str(caught.value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, ("0", "-7", "9007199254740993", "1" * 400), ("60.0", "1e2", "true", "01", "+1")),
        ({"type": "number"}, ("1", "1.5", "-0.0", "1e2", "1E-7"), (".5", "1.", "NaN", "Infinity", "true")),
        ({"enum": [1]}, ("1",), ("1.0", "true", '"1"')),
        ({"const": 1.0}, ("1",), ("1.0", "true")),
        ({"const": 1e2}, ("100",), ("1e2",)),
        ({"enum": [True, "1"]}, ("true", '"1"'), ("1",)),
        ({"type": "integer", "enum": [1.0, 2.5]}, ("1",), ("2.5", "2")),
        ({"type": "number", "multipleOf": 0.1}, ("0.3", "7"), ("0.35",)),
    ],
)
def test_case_j09_numbers_are_written_in_one_way(schema: dict[str, Any], good: tuple[str], bad: tuple[str]) -> None:
    for text in good:
        assert accepts(constraint(schema), text), text
    for text in bad:
        assert not accepts(constraint(schema), text), text


# ---- objects ---------------------------------------------------------------------------------------------------------


def test_a_described_name_cannot_be_spelled_in_another_way() -> None:
    """With escapes for printable characters it could, and its value would escape its description."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    assert accepts(constraint(schema), '{"a": 1, "b": "x"}')
    assert not accepts(constraint(schema), '{"a": "x"}')
    assert not accepts(constraint(schema), '{"\\u0061": "x"}')
    patterns = {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}
    assert not accepts(constraint(patterns | {"additionalProperties": {"type": "string"}}), '{"\\u0078": "a"}')


def test_a_count_of_names_that_could_repeat_is_refused() -> None:
    assert "minProperties at #" in refusal({"type": "object", "minProperties": 2})
    assert "minProperties at #" in refusal(OBJECT | {"minProperties": 2, "patternProperties": {"a": {}}})
    names = {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["a"]}
    two = {"type": "object", "minProperties": 2, **names, "required": ["a", "b"]}
    assert accepts(constraint(two), '{"a": null, "b": null}')
    assert not accepts(constraint({"type": "object", "minProperties": 1}), "{}")


def test_control_characters_of_constants_are_refused() -> None:
    assert "#/enum" in refusal({"enum": ["a\x01"]})
    assert "#/const" in refusal({"const": {"k": ["\x7f"]}})
    assert accepts(constraint({"const": "\b\t\n\f\r"}), r'"\b\t\n\f\r"')


def test_sizes_are_limited() -> None:
    assert "more than 1000 names" in refusal({"properties": {f"p{i}": {} for i in range(1001)}})
    assert "more than 1000 names" in refusal({"required": [f"p{i}" for i in range(1001)]})
    assert "more than 20000 parts" in refusal({"anyOf": [{}] * 20_001})
    parts = {f"d{i}": {} for i in range(1100)}
    assert "more than 1000 definitions" in refusal({"anyOf": [{"$ref": f"#/$defs/{n}"} for n in parts], "$defs": parts})


def test_the_order_of_keywords_and_properties_is_kept() -> None:
    text = '{"allOf": [{"type": "object"}], "required": ["b"], "properties": {"b": {}, "a": {}}, "anyOf": [{}]}'
    parts = normalise(read_json(text), strict=True).schema["allOf"]
    assert [list(part) for part in parts] == [["type"], ["required", "properties"], ["anyOf"]]
    assert list(parts[1]["properties"]) == ["b", "a"]


def test_booleans_as_schemas() -> None:
    assert accepts(constraint(True), '[1, {"a": null}]')
    assert accepts(constraint({"items": True}), "[1]")
    assert not accepts(constraint({"type": "array", "items": False}), "[1]")
    assert "no base case" in refusal(False)
