"""The judge of finished outputs: what is valid, what is not, and what is only the beginning."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from samebits.errors import InputError, OutputInvalid
from samebits.structured import Choice, JsonObject, JsonSchema, Lark, Regex, StructuredSpec, validate
from samebits.structured.validate import _Validators, pattern_sizes, validator_of

INTEGER = JsonSchema('{"type": "integer"}')
ANY = JsonSchema("{}")


def verdict(text: str, spec: StructuredSpec) -> str:
    try:
        validate(text, spec)
    except OutputInvalid as error:
        return "incomplete" if error.incomplete else "invalid"
    return "valid"


@pytest.mark.parametrize("text", ["60.0", "1e2", "1E+2", "0", "-7", "9007199254740993", "1" * 5000, "1e400"])
def test_case_j09_these_are_integers(text: str) -> None:
    assert verdict(text, INTEGER) == "valid"


@pytest.mark.parametrize("text", ["true", "1.5", '"1"', "null", "1e-1", "9007199254740993.5"])
def test_case_j09_these_are_not(text: str) -> None:
    assert verdict(text, INTEGER) == "invalid"


def test_case_j09_numbers_are_not_rounded() -> None:
    for bound, good, bad in (
        (2**53, "9007199254740992", "9007199254740993"),
        (2**63 - 1, "9223372036854775807", "9223372036854775808"),
        (2**64, "18446744073709551616", "18446744073709551617"),
    ):
        spec = JsonSchema(f'{{"maximum": {bound}}}')
        assert float(good) == float(bad), "not exercised: floats tell them apart"
        assert (verdict(good, spec), verdict(bad, spec)) == ("valid", "invalid")
    spec = JsonSchema('{"minimum": 0.1}')
    assert (verdict("0.1", spec), verdict("0.09999999999999999999999", spec)) == ("valid", "invalid")
    assert verdict("0.30000000000000000001", JsonSchema('{"const": 0.3}')) == "invalid"


@pytest.mark.parametrize("text", ["1", "1.0", "1e0"])
def test_case_j09_equal_numbers_are_one_value(text: str) -> None:
    assert verdict(text, JsonSchema('{"enum": [1]}')) == "valid"
    assert verdict(text, JsonSchema('{"enum": [1.0]}')) == "valid"
    assert verdict("true", JsonSchema('{"enum": [1]}')) == "invalid"


@pytest.mark.parametrize(
    "text", ['{"a": 1', '{"a', "[1, ", '"x', "tru", "-", "1.", "1e", "", "   ", '{"a": {"b": [', '"\\u12', '{"a":']
)
def test_the_beginning_of_json_is_incomplete(text: str) -> None:
    assert verdict(text, ANY) == "incomplete"


@pytest.mark.parametrize(
    "text", ["{]", "nope", "1 2", '{"a": 1}x', "NaN", "[Infinity]", "{'a': 1}", "01", "[1,]", "\x00"]
)
def test_what_can_never_become_json_is_invalid(text: str) -> None:
    assert verdict(text, ANY) == "invalid"


def test_a_name_twice_is_invalid() -> None:
    """Readers differ in which of the two they see, so it would not be the same answer to all."""
    with pytest.raises(OutputInvalid, match="name 'a' twice"):
        validate('{"b": {"a": 1, "a": 1}}', ANY)


def test_lone_surrogates_and_depth() -> None:
    assert verdict('"\\ud800"', ANY) == "invalid"
    assert verdict("[" * 200 + "]" * 200, ANY) == "valid"
    with pytest.raises(OutputInvalid, match="nested deeper than 200"):
        validate("[" * 201 + "]" * 201, ANY)
    assert (
        verdict("[" * 100_000, JsonSchema('{"$ref": "#/$defs/n", "$defs": {"n": {"items": {"$ref": "#"}}}}')) != "valid"
    )


@pytest.mark.parametrize(
    ("text", "most"), [("1e", False), ("-1e", True), ("1e-", True), ("-1.5E-", True), ("0e", True), ("1.5e+", False)]
)
def test_an_exponent_of_any_length_is_json(text: str, most: bool) -> None:
    """A grammar lets a model write one, so the judge must not take it for what no JSON can be."""
    number = text + "9" * 30
    assert (
        verdict(number, ANY)
        == verdict(f"[{number}]", ANY)
        == verdict(number, JsonSchema('{"type": "number"}'))
        == "valid"
    )
    assert verdict(number, JsonSchema('{"maximum": 5}')) == ("valid" if most else "invalid")
    assert verdict(number, JsonSchema('{"const": 7}')) == "invalid"


@pytest.mark.parametrize("text", ["1" * 5000, "-" + "1" * 5000, "[" + "1" * 5000 + "]", '{"a": ' + "1" * 5000 + "}"])
def test_an_integer_too_long_for_a_message_is_invalid_like_any_other(text: str) -> None:
    spec = JsonSchema('{"maximum": 5, "minimum": -5, "maxItems": 0, "additionalProperties": {"const": 2}}')
    assert verdict(text, spec) == verdict(text.replace("1" * 5000, "1" * 50), spec) == "invalid"
    assert verdict(text, ANY) == "valid"


@pytest.mark.parametrize(
    ("text", "spec", "field"), [(None, ANY, "text"), (b"{}", ANY, "text"), ("{}", None, "spec"), ("{}", "{}", "spec")]
)
def test_what_is_no_text_or_structure_is_refused_by_name(text: Any, spec: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(text, spec)
    assert caught.value.field == field


def test_the_place_and_the_keyword_are_named() -> None:
    spec = JsonSchema('{"properties": {"a/b": {"items": {"type": "string", "maxLength": 2}}}}')
    with pytest.raises(OutputInvalid, match="maxLength") as caught:
        validate('{"a/b": ["xy", "xyz"]}', spec)
    assert caught.value.path == "/a~1b/1"
    assert str(caught.value).startswith("output at /a~1b/1: ")
    assert not caught.value.incomplete


def test_what_a_grammar_leaves_out_is_judged_here() -> None:
    spec = JsonSchema('{"type": "array", "uniqueItems": true, "not": {"const": []}}', strict=False)
    assert [verdict(t, spec) for t in ("[1, 2]", "[1, 1]", "[1, 1.0]", "[]")] == [
        "valid",
        "invalid",
        "invalid",
        "invalid",
    ]


def test_json_objects() -> None:
    assert [verdict(t, JsonObject()) for t in ("{}", ' {"a":1}\n', "[]", "1", "{")] == [
        "valid", "valid", "invalid", "invalid", "incomplete",
    ]  # fmt: skip


def test_other_kinds() -> None:
    phone = Regex("[0-9]{3}-[0-9]{4}")
    assert [verdict(t, phone) for t in ("123-4567", "123-4", "x", "123-45678", "")] == [
        "valid", "incomplete", "invalid", "invalid", "incomplete",
    ]  # fmt: skip
    assert [verdict(t, Regex("a|bc")) for t in ("a", "bc", "ac", "b")] == ["valid", "valid", "invalid", "incomplete"]
    colours = Choice(("red", "green"))
    assert [verdict(t, colours) for t in ("red", "gre", "blue", "")] == ["valid", "incomplete", "invalid", "incomplete"]
    nested = Lark('start: "(" start? ")"')
    assert [verdict(t, nested) for t in ("(())", "((", "())")] == ["valid", "incomplete", "invalid"]


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def no_network(*args: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    with pytest.raises(InputError, match=r"\$ref leads out of the schema"):
        validate("1", JsonSchema('{"$ref": "http://127.0.0.1:9/schema.json"}'))


# ---- memory ----------------------------------------------------------------------------------------------------------

LARGE = "^(a{1,900}){1,90}$"  # 81,000 letters: 10 MB


def test_patterns_are_bounded_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = JsonSchema.of({"properties": {"a": {"pattern": LARGE}, "b": {"patternProperties": {LARGE: {}}}}})
    assert 160_000 < pattern_sizes(spec) < 170_000
    monkeypatch.setattr(sys.modules["samebits.structured.validate"], "_validator", None)  # it is not reached
    with pytest.raises(InputError, match="repetitions written out"):
        validator_of(spec)


def test_control_one_such_pattern_is_taken() -> None:
    validate('"aaa"', JsonSchema.of({"pattern": LARGE}))


def test_validators_are_kept_up_to_a_size() -> None:
    kept = _Validators(1000)
    small = JsonSchema.of({"const": 1}).text
    first = kept.get(small)
    assert kept.get(small) is first
    for i in range(20):
        kept.get(JsonSchema.of({"pattern": f"a{{{900 + i}}}"}).text)
    assert kept.get(small) is not first
    assert kept._size <= 1000
    assert kept._size == sum(size for _, size in kept._known.values())


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[b-a]", "*"])
def test_a_pattern_that_is_none_is_shown_as_it_was_given(pattern: str) -> None:
    with pytest.raises(InputError) as caught:
        validate("a", Regex(pattern))
    assert caught.value.field == "regex"
    assert repr(pattern) in str(caught.value)
