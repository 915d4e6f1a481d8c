"""Structures in the Python API: given for all prompts or each, judged at the end, refused before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from samebits import LLM, SamplingParams
from samebits.engine import Event
from samebits.errors import InputError, ModelError, OutputInvalid
from samebits.structured import Choice, JsonObject, JsonSchema

PAIR = JsonSchema.of(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 9}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
SHORT = SamplingParams(max_tokens=30)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    try:
        with LLM("smollm2") as made:
            yield made
    except ModelError as error:
        pytest.skip(str(error))


def test_one_for_all_and_one_for_each(llm: LLM) -> None:
    both = llm.generate(["A:", "B:"], SHORT, structured=PAIR)
    assert [list(json.loads(c.text)) for c in both] == [["name", "age"]] * 2
    assert [c.finish_reason for c in both] == ["stop", "stop"]
    each = llm.generate(["A:", "A:", "A:"], SHORT, structured=[None, PAIR, Choice(("yes", "no"))])
    free = llm.generate("A:", SHORT)[0]
    assert each[0].token_ids == free.token_ids
    assert each[1].token_ids == both[0].token_ids != free.token_ids
    assert each[2].text in ("yes", "no")


@pytest.mark.parametrize(
    ("structured", "field"),
    [
        ({"type": "object"}, "structured"),
        ([PAIR], "structured"),
        ([PAIR, "json"], "structured"),
        ([None, JsonSchema('{"uniqueItems": true}')], "json_schema"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_runs(llm: LLM, structured: Any, field: str) -> None:
    steps = llm.engine.stats.steps
    with pytest.raises(InputError) as caught:
        llm.generate(["A", "B"], structured=structured)
    assert caught.value.field == field
    assert llm.engine.stats.steps == steps
    assert not llm.engine.busy


def test_ignore_eos_is_refused(llm: LLM) -> None:
    with pytest.raises(InputError, match="ignore_eos"):
        llm.generate("A", SamplingParams(ignore_eos=True), structured=PAIR)
    assert not llm.engine.busy


def test_a_cut_output_is_incomplete_and_left_as_it_is(llm: LLM) -> None:
    whole = llm.generate("A:", SHORT, structured=PAIR)[0]
    cut = llm.generate("A:", SamplingParams(max_tokens=4), structured=PAIR)[0]
    assert (cut.finish_reason, cut.error) == ("length", None)
    assert cut.token_ids == whole.token_ids[:4]
    assert whole.text.startswith(cut.text)


def test_an_output_that_ended_and_is_not_valid_is_an_error(llm: LLM) -> None:
    """A stop text within JSON cuts it; the text is what it was, and events say the same as the result."""
    events: list[Event] = []
    params = SamplingParams(max_tokens=30, stop='"age')
    (got,) = llm.generate("A:", params, structured=PAIR, on_event=lambda index, event: events.append(event))
    assert (got.finish_reason, got.stop_reason) == ("error", '"age')
    assert isinstance(got.error, OutputInvalid)
    assert got.error.incomplete
    assert got.text.startswith('{"name": ')
    assert events[-1].completion == got


def test_what_is_left_to_validation_is_judged(llm: LLM) -> None:
    spec = JsonSchema(
        '{"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2, "uniqueItems": true}', strict=False
    )
    assert llm.grammars.compile(spec).unenforced == ("uniqueItems at #",)
    (got,) = llm.generate("A:", SHORT, structured=spec)
    assert got.text == "[1, 1]"
    assert isinstance(got.error, OutputInvalid)
    assert "uniqueItems" in str(got.error)


def test_json_objects(llm: LLM) -> None:
    for c in llm.generate(
        "A person as JSON: ", SamplingParams(max_tokens=40, n=3, temperature=1.0, seed=1), structured=JsonObject()
    ):
        if c.finish_reason == "stop":
            assert isinstance(json.loads(c.text), dict)
        else:
            assert c.finish_reason == "length"
