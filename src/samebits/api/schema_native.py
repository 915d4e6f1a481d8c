"""Requests of /generate, in the form of SGLang's own route."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from samebits.api.schema_common import MOST_PROMPTS, Ids, StopIds, Stops
from samebits.api.schema_strict import Many, Strict
from samebits.engine.params import MAX_CHOICES, MAX_TOP_LOGPROBS, SEED_MAX, SEED_MIN
from samebits.gateway.levels import Level


def _list_kind(value: object) -> str:
    return "<lists>" if isinstance(value, list) and value and isinstance(value[0], list) else "<ids>"


def _text_kind(value: object) -> str:
    return "<texts>" if isinstance(value, list) else "<text>"


Texts = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[Many[str], Tag("<texts>"), Field(min_length=1, max_length=MOST_PROMPTS)],
    Discriminator(_text_kind),
]
IdLists = Annotated[
    Annotated[Ids, Tag("<ids>")] | Annotated[Many[Ids], Tag("<lists>"), Field(min_length=1, max_length=MOST_PROMPTS)],
    Discriminator(_list_kind),
]


class NativeSampling(Strict):
    """Sampling parameters under SGLang's names."""

    max_new_tokens: int | None = Field(None, ge=1, lt=2**31, description="Default 128.")
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=2**31, description="0 and -1 keep all ids.")
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    sampling_seed: int | None = Field(None, ge=SEED_MIN, le=SEED_MAX)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stop: Stops | None = None
    stop_token_ids: StopIds | None = None
    ignore_eos: bool | None = None


class GenerateRequest(Strict):
    """The body of POST /generate: either text or input_ids."""

    model: str | None = Field(None, description="Needed where more than one model is served.")
    text: Texts | None = None
    input_ids: IdLists | None = None
    sampling_params: NativeSampling | None = None
    return_logprob: bool | None = None
    top_logprobs_num: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    logprob_start_len: int | None = Field(
        None, ge=-1, lt=2**31, description="Also those of the prompt from this position on; -1: of the output only."
    )
    return_text_in_logprobs: bool | None = None
    stream: bool | None = Field(None, description="Each event holds the answer so far; of a list, with its index.")
    rid: str | None = Field(None, max_length=256, description="Becomes meta_info.id of a single answer.")
    determinism: Level | None = None
