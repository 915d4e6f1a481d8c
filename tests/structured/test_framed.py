"""JSON values in frames: each schema within its own texts, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from writers import COMPILER, accepts, at_random, write

from samebits.errors import InputError
from samebits.structured import Frame, Framed, JsonSchema, spec_digest, validate

NUMBER = JsonSchema.of({"$ref": "#/$defs/n", "$defs": {"n": {"enum": [1, 2]}}})
NAME = JsonSchema.of({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}, strict=False)
FRAMES = (Frame("<n>", NUMBER, "</n>"), Frame('{"o": ', NAME, "}"))


def framed(separator: str | None = ", ", begins: tuple[str, ...] = ("[", " ["), end: str = "]") -> Framed:
    return Framed(begins, FRAMES, separator, end)


def is_read(spec: Framed, text: str) -> bool:
    return accepts(COMPILER.compile(spec).constraint(), text)


def test_what_is_of_the_form() -> None:
    for text in ("[<n>1</n>]", " [<n>2</n>]", '[{"o": {"a": true}}]', '[<n>1</n>, {"o": {"a": false}}, <n>1</n>]'):
        assert is_read(framed(), text), text


@pytest.mark.parametrize(
    "text",
    ["", "[]", "<n>1</n>", "[<n>1</n>", "[<n>3</n>]", "[<n>1</n>,<n>1</n>]", '[{"o": 1}]', "[<n>1</n>, ]", "[1]"],
)
def test_what_is_not(text: str) -> None:
    assert not is_read(framed(), text)


def test_one_alone_ends_at_once() -> None:
    spec = framed(None, ("",), "")
    assert is_read(spec, "<n>1</n>")
    assert not is_read(spec, "<n>1</n><n>1</n>")
    follow = COMPILER.compile(spec).constraint()
    for byte in b"<n>1</n>":
        assert not follow.finished
        follow.accept(byte)
    assert follow.finished


def test_what_is_written_holds_valid_values() -> None:
    for seed in range(30):
        written = write(COMPILER.compile(framed(None, ("",), "")).constraint(), at_random(seed))
        if written.ended and written.text.startswith("<n>"):
            validate(written.text.removeprefix("<n>").removesuffix("</n>"), NUMBER)
        elif written.ended:
            validate(written.text.removeprefix('{"o": ').removesuffix("}"), NAME)


def test_every_part_is_in_the_digest() -> None:
    one = framed()
    others = [
        framed(None),
        framed("; "),
        framed(begins=("[",)),
        framed(end=""),
        Framed(one.begins, FRAMES[::-1], one.separator, one.end),
        Framed(one.begins, (Frame("<m>", NUMBER, "</n>"), FRAMES[1]), one.separator, one.end),
        Framed(one.begins, (Frame("<n>", NAME, "</n>"), FRAMES[1]), one.separator, one.end),
    ]
    assert len({spec_digest(spec) for spec in (one, *others)}) == 1 + len(others)
    assert spec_digest(framed()) == spec_digest(one)


def unique(*, strict: bool) -> Any:
    schema = JsonSchema.of({"type": "array", "uniqueItems": True}, strict=strict)
    return Framed(("",), (FRAMES[0], Frame("<u>", schema, "</u>")), None, "")


def test_what_cannot_be_enforced_is_refused_or_told() -> None:
    with pytest.raises(InputError, match="uniqueItems"):
        COMPILER.compile(unique(strict=True))
    grammar = COMPILER.compile(unique(strict=False))
    assert any("uniqueItems" in place for place in grammar.unenforced)
    assert accepts(grammar.constraint(), "<u>[1, 1]</u>"), "it is left to the validation"
