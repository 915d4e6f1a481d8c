"""Whatever a model writes under a schema that was accepted is valid, by another judge: no keyword is enforced half."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from writers import Written, accepts, at_random, constraint, write

from samebits.errors import InputError, OutputInvalid
from samebits.structured import JsonSchema, validate

NAMES = st.sampled_from(("a", "b", "zulu", "é/~", 'q"', "x-y", "", "name"))
SCALARS = st.sampled_from(("a", "", "é\n", True, False, None, 0, -1, 7, 1.0, 1.5, 1e2, 0.1))
PATTERNS = st.sampled_from(
    (r"^a+b?$", r"\d", r"^\s\S$", r"^.$", r"^[^a-c]{2}$", r"x|^y$", r"^[[-]{1,3}$", r"^(?:ab|c)*$", "é", r"^[\w-]+$")
)


def bounds(low: str, high: str, most: int) -> st.SearchStrategy[dict[str, int]]:
    pairs = st.lists(st.integers(0, most), min_size=2, max_size=2).map(sorted)
    return st.sampled_from(((low,), (high,), (low, high), ())).flatmap(
        lambda keys: pairs.map(lambda pair: {k: pair[k == high] for k in keys})
    )


def numbers(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    value = st.integers(-120, 120) | st.sampled_from((-0.5, 0.25, 1.75, 99.99, -1e-3))
    return st.fixed_dictionaries(
        {"type": st.just(kind)},
        optional={
            "minimum": value.map(lambda v: v - 100), "exclusiveMinimum": value.map(lambda v: v - 100),
            "maximum": value.map(lambda v: v + 200), "exclusiveMaximum": value.map(lambda v: v + 200),
            "multipleOf": st.sampled_from((1, 2, 3, 7, 0.5, 0.25, 0.1, 1.5)),
        },
    )  # fmt: skip


STRINGS = st.builds(
    lambda sizes, more: {"type": "string"} | sizes | more,
    bounds("minLength", "maxLength", 6),
    st.just({}) | PATTERNS.map(lambda p: {"pattern": p}),
).filter(lambda s: not ("pattern" in s and "minLength" in s)) | st.sampled_from(
    [{"type": "string", "format": f} for f in ("date", "uuid", "ipv4", "duration")]
)
LEAVES: st.SearchStrategy[Any] = (
    numbers("integer") | numbers("number") | STRINGS | st.builds(lambda v: {"const": v}, SCALARS)
    | st.lists(SCALARS, min_size=1, max_size=4).map(lambda v: {"enum": v})
    | st.sampled_from(({}, True, {"type": ["null", "integer"]}, {"type": "boolean"}, {"minLength": 2, "minimum": 3}))
    | st.just({"$ref": "#/$defs/leaf"}) | st.just({"$ref": "#/$defs/list"})
)  # fmt: skip


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(NAMES, inner, max_size=4)
    rest = st.sampled_from((False, True, {"type": "integer"}))
    objects = st.builds(
        lambda p, names, r, order: dict(
            order.permute([("type", "object"), ("properties", p), ("required", names(p)), ("additionalProperties", r)])
        ),
        properties,
        st.sampled_from((list, lambda p: list(p)[::2], lambda p: [*list(p)[:1], "more"], lambda p: [])),
        rest,
        st.randoms(use_true_random=False).map(Shuffled),
    ).filter(lambda s: s["additionalProperties"] is not False or set(s["required"]) <= set(s["properties"]))
    maps = st.builds(
        lambda value, other: {"type": "object", "patternProperties": {"^x": value}, "additionalProperties": other},
        inner, rest,
    )  # fmt: skip
    counted = st.builds(
        lambda sizes, r: {"type": "object", "additionalProperties": r} | sizes,
        bounds("minProperties", "maxProperties", 1), inner,
    )  # fmt: skip
    arrays = st.builds(
        lambda sizes, first, items: {"type": "array", "prefixItems": first, "items": items} | sizes,
        bounds("minItems", "maxItems", 4), st.lists(inner, min_size=1, max_size=2), inner,
    )  # fmt: skip
    lists = st.builds(
        lambda sizes, items: {"type": "array", "items": items} | sizes, bounds("minItems", "maxItems", 4), inner
    )
    return (
        objects | maps | counted | arrays | lists
        | st.lists(inner, min_size=1, max_size=3).map(lambda s: {"anyOf": s})
        | st.builds(lambda a, b: {"allOf": [a, {"anyOf": [b, a]}]}, inner, inner)
        | st.builds(lambda a: {"oneOf": [a, {"type": "null"}]}, arrays | objects)
    )  # fmt: skip


class Shuffled:
    """Gives a list in another order: the place of a keyword must not matter."""

    def __init__(self, rng: Any) -> None:
        self._rng = rng

    def permute(self, items: list[Any]) -> list[Any]:
        return self._rng.sample(items, len(items))


SCHEMAS = st.builds(
    lambda s, leaf: (
        (s if isinstance(s, dict) else {"allOf": [s]})
        | {"$defs": {"leaf": leaf, "list": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/list"}, leaf]}}}}
    ),
    st.recursive(LEAVES, containers, max_leaves=6),
    numbers("integer") | STRINGS,
)


def judge(schema: Any, written: Written) -> None:
    """Asserts that a text is valid, or the beginning of one."""
    if written.ended:
        validate(written.text, JsonSchema.of(schema))
        return
    with pytest.raises(OutputInvalid) as cut:
        validate(written.text, JsonSchema.of(schema))
    assert cut.value.incomplete, (str(cut.value), written.text)


def twice(text: str) -> bool:
    """Whether a name comes twice in one object: grammars cannot prevent that, and validation refuses it."""
    try:
        validate(text, JsonSchema("{}"))
    except OutputInvalid as error:
        return "twice" in str(error)
    return False


COUNTS = {"accepted": 0, "refused": 0, "ended": 0, "twice": 0}


@settings(max_examples=400, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(SCHEMAS, st.integers(0, 2**32))
def check_random_schemas(schema: Any, seed: int) -> None:
    try:
        follow = constraint(schema)
    except InputError:
        COUNTS["refused"] += 1
        return
    COUNTS["accepted"] += 1
    for i in range(3):
        written = write(follow.fork(), at_random(seed + i))
        COUNTS["ended"] += written.ended
        if twice(written.text):
            COUNTS["twice"] += 1
            continue
        judge(schema, written)


def test_random_schemas() -> None:
    check_random_schemas()
    assert COUNTS["accepted"] > 3 * COUNTS["refused"], COUNTS
    assert COUNTS["ended"] > COUNTS["accepted"], COUNTS
    assert COUNTS["twice"] < COUNTS["ended"] / 10, COUNTS


WITH_AND_WITHOUT: tuple[tuple[dict[str, Any], str], ...] = (
    ({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 2}, "minItems"),
    ({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 2}, "maxItems"),
    ({"type": "array", "items": {"type": "integer"}}, "items"),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 1}, "prefixItems"),
    ({"type": "integer", "minimum": 3, "maximum": 20}, "minimum"),
    ({"type": "integer", "minimum": 3, "maximum": 20}, "maximum"),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "exclusiveMinimum"),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "exclusiveMaximum"),
    ({"type": "integer", "multipleOf": 7}, "multipleOf"),
    ({"type": "string", "minLength": 2, "maxLength": 4}, "minLength"),
    ({"type": "string", "minLength": 2, "maxLength": 4}, "maxLength"),
    ({"type": "string", "pattern": r"^\d+$"}, "pattern"),
    ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}, "required"),
    ({"properties": {"a": {"type": "null"}}, "type": "object", "additionalProperties": False}, "additionalProperties"),
    ({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1}, "minProperties"),
    ({"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 0}, "maxProperties"),
    ({"type": "object", "patternProperties": {"": {"type": "null"}}}, "patternProperties"),
    ({"type": "integer", "enum": [1, 2]}, "enum"),
    ({"type": "string", "const": "yes"}, "const"),
    ({"type": ["integer", "null"], "anyOf": [{"minimum": 100}]}, "anyOf"),
    ({"type": "integer", "allOf": [{"minimum": 100}]}, "allOf"),
    ({"type": ["integer", "null"], "oneOf": [{"type": "null"}, {"type": "string"}]}, "oneOf"),
    ({"type": "integer"}, "type"),
)


@pytest.mark.parametrize(("schema", "keyword"), WITH_AND_WITHOUT, ids=lambda v: v if isinstance(v, str) else "")
def test_each_keyword_is_enforced_and_its_absence_would_be_seen(schema: dict[str, Any], keyword: str) -> None:
    """The control of every keyword: written without it, texts fail the schema that has it."""
    without = {k: v for k, v in schema.items() if k != keyword}
    for seed in range(30):
        written = write(constraint(schema), at_random(seed))
        if not twice(written.text):
            judge(schema, written)
    bad = 0
    for seed in range(60):
        written = write(constraint(without), at_random(seed))
        if written.ended:
            try:
                validate(written.text, JsonSchema.of(schema))
            except OutputInvalid as error:
                bad += "twice" not in str(error)
    assert bad, f"not exercised: {keyword} makes no difference"


def test_case_j05_lengths_bounds_and_closed_objects() -> None:
    schema = {
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 2, "maxItems": 2},
            "age": {"type": "integer", "minimum": 18, "maximum": 99},
        },
        "required": ["names", "age"],
        "additionalProperties": False,
    }
    for seed in range(60):
        written = write(constraint(schema), at_random(seed), most=2000)
        assert written.ended
        value = json.loads(written.text)
        assert len(value["names"]) == 2
        assert 18 <= value["age"] <= 99
    assert not accepts(constraint(schema), '{"names": ["a", "b", "c"], "age": 20}')
    assert not accepts(constraint(schema), '{"names": ["a", "b"], "age": 20, "x": 1}')
    assert accepts(constraint(schema), '{"names": ["a", "b"], "age": 20}')


def test_case_j04_properties_come_in_the_order_of_the_schema() -> None:
    names = ["zulu_note", "alpha_note", "mike_note"]
    schema = {"type": "object", "properties": {n: {"type": "integer"} for n in names}, "required": sorted(names)}
    closed = schema | {"additionalProperties": False}
    orders = {tuple(json.loads(write(constraint(closed), at_random(s)).text)) for s in range(30)}
    assert orders == {tuple(names)}
    other = closed | {"properties": {n: {"type": "integer"} for n in sorted(names)}}
    assert list(json.loads(write(constraint(other), at_random(0)).text)) == sorted(names)


@pytest.mark.parametrize("first", ["allOf", "properties"])
def test_the_order_of_the_text_holds_across_keywords(first: str) -> None:
    parts: dict[str, Any] = {
        "allOf": [{"properties": {"m": {"type": "null"}}, "required": ["m"]}],
        "properties": {"a": {"type": "null"}},
    }
    order = [first, *(k for k in parts if k != first)]
    schema = {"type": "object", **{k: parts[k] for k in order}, "required": ["a"], "maxProperties": 2}
    text = write(constraint(schema), at_random(1)).text
    assert list(json.loads(text)) == (["m", "a"] if first == "allOf" else ["a", "m"])
