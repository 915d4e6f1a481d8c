"""Prompts as they are read, and answers as they are judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samebits.audit.prompts import Prompt, judge, prompts_digest, read_label, read_number, read_prompts
from samebits.errors import InputError

HI = [{"role": "user", "content": "Hi"}]


def write(folder: Path, *lines: object) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def test_the_bundled_set_has_all_kinds_and_a_long_prompt() -> None:
    prompts = read_prompts("bundled")
    assert len(prompts) >= 24
    assert {prompt.kind for prompt in prompts} == {"text", "number", "label", "json"}
    assert any(prompt.characters > 8000 for prompt in prompts)  # over 1,000 tokens in any tokenizer
    for prompt in prompts:
        if prompt.expected is not None:
            right = json.dumps(prompt.expected) if prompt.kind == "json" else f"It is {prompt.expected}."
            assert judge(prompt, right).correct is True, prompt.id
            assert judge(prompt, "I cannot say.").correct is False, prompt.id


def test_a_file_is_read(tmp_path: Path) -> None:
    one, two, three = read_prompts(
        write(
            tmp_path,
            {"messages": HI},
            "",
            {"id": "b", "messages": HI, "labels": ["yes", "no"], "expected": "no"},
            {"messages": HI, "schema": {"type": "object"}, "expected": {"a": 1}},
        )
    )
    assert (one.id, one.kind, one.expected) == ("prompt-1", "text", None)
    assert (two.id, two.kind, two.labels) == ("b", "label", ("yes", "no"))
    assert (three.id, three.kind) == ("prompt-3", "json")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        {},
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "user", "content": "x", "name": "y"}]},
        {"messages": HI, "expectd": 1},
        {"messages": HI, "kind": "poem"},
        {"messages": HI, "kind": "label"},
        {"messages": HI, "kind": "number", "expected": "many"},
        {"messages": HI, "kind": "number", "labels": ["a"]},
        {"messages": HI, "labels": ["a"], "expected": "b"},
        {"messages": HI, "labels": [1]},
        {"messages": HI, "expected": 3},
        {"messages": HI, "schema": "x"},
        {"id": 3, "messages": HI},
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: object) -> None:
    with pytest.raises(InputError, match="line 2"):
        read_prompts(write(tmp_path, {"messages": HI}, line))


def test_no_prompts_or_equal_ids_are_refused(tmp_path: Path) -> None:
    for lines in ((), ({"id": "a", "messages": HI}, {"id": "a", "messages": HI})):
        with pytest.raises(InputError, match="prompts"):
            read_prompts(write(tmp_path, *lines))
    with pytest.raises(InputError, match="prompts"):
        read_prompts(str(tmp_path / "no-such-file"))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The sum is 843.", "843"),
        ("From 1 to 1,234.5 then", "1234.5"),
        ("1\u00a0234", "1234"),  # with a no-break space
        ("12,3456", "3456"),  # no group of three digits: two numbers
        ("It costs 2.50.", "2.5"),
        ("−3", "-3"),
        ("none", None),
        ("7 or 8", "8"),
    ],
)
def test_the_last_number(text: str, number: str | None) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Positive.", "positive"),
        ("not positive but negative", "positive"),
        ("unpositive", None),
        ("very positive, that is", "very positive"),
        ("", None),
    ],
)
def test_the_first_label(text: str, label: str | None) -> None:
    assert read_label(text, ("positive", "negative", "very positive")) == label


def prompt(**values: Any) -> Prompt:
    return Prompt(id="p", messages=tuple(HI), **values)


def test_json_is_compared_in_canonical_form() -> None:
    asked = prompt(kind="json", expected={"a": 1, "b": [2]})
    for text in ('{"b":[2],"a":1}', 'Here:\n```json\n{"a": 1.0, "b": [2]}\n```\nDone.'):
        assert judge(asked, text).correct is True
        assert judge(asked, text).parsed == '{"a":1,"b":[2]}'
    for text in ('{"a":1,"b":[3]}', '{"a":1', "12", "[" * 100_000):
        assert judge(asked, text).correct is False


def test_one_digit_makes_an_answer_wrong() -> None:
    asked = prompt(kind="number", expected=843)
    assert judge(asked, "843").correct is True
    assert judge(asked, "844").correct is False


def test_nothing_expected_is_neither_right_nor_wrong() -> None:
    assert judge(prompt(), "anything").correct is None
    assert judge(prompt(kind="number"), "7").correct is None
    assert judge(prompt(kind="number"), "7").answer == "7"


def test_the_digest_covers_every_field() -> None:
    one = prompt()
    for other in (prompt(kind="number"), prompt(expected="x"), prompt(schema={"a": 1})):
        assert prompts_digest([one]) != prompts_digest([other])
    assert prompts_digest([one]) == prompts_digest([prompt()])


@pytest.mark.parametrize(
    "value", ["1e400", "NaN", "12345678901234567890123", '"\\ud800"', "[" * 100_000], ids=lambda text: text[:24]
)
def test_what_cannot_be_sent_is_refused_before_anything_is(value: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    message = '"messages": [{"role": "user", "content": "x"}]'
    path.write_text(
        f'{{{message}, "schema": {{"enum": [1.5, "\\u00e9"]}}}}\n{{{message}, "schema": {{"enum": [{value}]}}}}'
    )
    with pytest.raises(InputError, match="prompts, line 2: is not JSON that can be sent"):
        read_prompts(str(path))
