"""Case J03: a model whose best token is always a blank, through the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from writers import EOS, SIZE, TOKENS, VOCABULARY

from samebits import kernels
from samebits.engine import Completion, Engine, Limits, ModelLimits, Request, SamplingParams
from samebits.errors import OutputInvalid
from samebits.models.batch import Batch
from samebits.structured import GrammarCompiler, JsonSchema, compiler, validate

CONTEXT = 4096
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 4},
        "home": {
            "type": "object",
            "properties": {"street": {"type": "string", "maxLength": 10}, "number": {"type": "integer", "maximum": 9}},
            "required": ["street", "number"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "tags", "home"],
    "additionalProperties": False,
}


@dataclass
class Blanks:
    """A decoder, and its own cache: blanks first, then what closes something, then the lowest id."""

    pages: int = CONTEXT // 256
    page_size: int = 256

    def zero_pages(self, pages: np.ndarray) -> None:
        """Holds nothing."""

    def forward(self, batch: Batch, cache: Any) -> np.ndarray:
        row = np.zeros(SIZE, np.float32)
        for token, content in enumerate(TOKENS):
            if content.isspace():
                row[token] = 10 + len(content)
            elif content[:1] in (b'"', b"]", b"}"):
                row[token] = 5
        row[EOS] = -5
        return np.tile(row, (len(batch.logit_rows), 1))


class Bytes:
    """Text of the small vocabulary."""

    def __init__(self) -> None:
        self.data = b""

    def push(self, token_id: int) -> str:
        return TOKENS[token_id].decode("latin-1")

    def finish(self) -> str:
        return ""


def answer(schema: dict[str, Any], max_tokens: int = 2048) -> Completion:
    model: Any = Blanks()
    engine = Engine(
        model, model, kernels.Context(1, "scalar"), ModelLimits(SIZE, CONTEXT, (EOS,)), Limits(4, 512, 256), Bytes
    )
    follow = GrammarCompiler(VOCABULARY).compile(JsonSchema.of(schema)).constraint()
    engine.add(Request((1, 2, 3), SamplingParams(max_tokens=max_tokens), constraint=follow))
    while engine.busy:
        for event in engine.step():
            if event.completion is not None:
                return event.completion
    raise AssertionError("the engine ended without a completion")


def test_case_j03_it_ends_with_valid_json() -> None:
    got = answer(PERSON)
    assert (got.finish_reason, got.stop_reason) == ("stop", None)
    validate(got.text, JsonSchema.of(PERSON))
    assert len(got.token_ids) < 200
    assert '": "' + " " * 30 + '"' in got.text, "not exercised: it did not take each blank it could"


def test_control_with_free_white_space_it_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("whitespace_flexible", True), ("item_separator", ","), ("key_separator", ":")):
        monkeypatch.setitem(compiler.GRAMMAR_OPTIONS, name, value)
    got = answer(PERSON)
    assert got.finish_reason == "length"
    assert got.text.isspace() or got.text.lstrip("{").isspace()


def test_case_j03_a_cut_output_is_said_to_be_incomplete() -> None:
    """A string without a bound may hold any number of blanks: they are text."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    got = answer(schema)
    assert (got.finish_reason, len(got.token_ids)) == ("length", 2048)
    assert got.text.startswith('{"a": "  ')
    with pytest.raises(OutputInvalid) as caught:
        validate(got.text, JsonSchema.of(schema))
    assert caught.value.incomplete
