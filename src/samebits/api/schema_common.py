"""What the requests of several routes have in common. An unknown field is refused; null means the default."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Discriminator, Field, Tag

from samebits.api.schema_format import ResponseFormat, StructuredOutputs
from samebits.api.schema_strict import Many, Strict, first_fault
from samebits.engine.params import MAX_CHOICES, MAX_STOP_IDS, MAX_STOP_LENGTH, MAX_STOPS, SEED_MAX, SEED_MIN
from samebits.gateway.levels import Level

# A field of OpenAI's API that this server does not have: null is fine, since it asks for nothing.
NotSupported = Annotated[None, Field(description="Not supported: only null is accepted.")]
MOST_PROMPTS: Final = 2048  # of a request; also the most choices of all of them


def _text_or_list(value: object) -> str:
    return "<list>" if isinstance(value, list) else "<text>"


def _prompt_kind(value: object) -> str:
    if not isinstance(value, list):
        return "<text>"
    if value and isinstance(value[0], str):
        return "<texts>"
    return "<lists>" if value and isinstance(value[0], list) else "<ids>"


# Which member of a union is meant is decided by the value's kind, so that an error speaks of that member alone.
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
Stops = Annotated[
    Annotated[Stop, Tag("<text>")] | Annotated[Many[Stop], Tag("<list>"), Field(max_length=MAX_STOPS)],
    Discriminator(_text_or_list),
]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
StopIds = Annotated[Many[TokenId], Field(max_length=MAX_STOP_IDS)]
Ids = Annotated[Many[TokenId], Field(min_length=1)]
Prompt = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[Many[str], Tag("<texts>"), Field(min_length=1, max_length=MOST_PROMPTS)]
    | Annotated[Ids, Tag("<ids>")]
    | Annotated[Many[Ids], Tag("<lists>"), Field(min_length=1, max_length=MOST_PROMPTS)],
    Discriminator(_prompt_kind),
]
_BIASED: Final = re.compile("(0|[1-9][0-9]{0,9})")


def _is_bias(name: str, value: object) -> bool:
    return (
        _BIASED.fullmatch(name) is not None
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and -100 <= value <= 100
    )


Biases = Annotated[
    dict[Annotated[str, Field(pattern=f"^{_BIASED.pattern}$")], Annotated[float, Field(ge=-100, le=100)]],
    first_fault(_is_bias),
]
Metadata = Annotated[dict[str, str], first_fault(lambda _, value: isinstance(value, str))]


class StreamOptions(Strict):
    """What a stream tells besides the answer."""

    include_usage: bool | None = Field(None, description="Send one more chunk, with the usage and no choices.")
    include_obfuscation: bool | None = Field(None, description="Accepted; nothing is ever padded here.")


class Sampling(Strict):
    """Fields that every generating route has."""

    model: str = Field(description="A name from /v1/models.")
    temperature: float | None = Field(None, ge=0, le=2, description="0 is greedy.")
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, lt=2**31, description="0 keeps all ids.")
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: Biases | None = Field(None, description="Token id, as a string, to addend.")
    seed: int | None = Field(
        None,
        ge=SEED_MIN,
        le=SEED_MAX,
        description="64-bit signed; 0 and -1 are seeds like any other. Absent or null: one is drawn and reported.",
    )
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stop: Stops | None = None
    stop_token_ids: StopIds | None = None
    ignore_eos: bool | None = None
    use_beam_search: bool | None = Field(None, description="Search with best_of beams instead of sampling.")
    best_of: int | None = Field(None, ge=1, le=16, description="Beams, at least n; default n. Needs use_beam_search.")
    length_penalty: float | None = Field(
        None, ge=-2, le=2, description="Scores are sums of log-probabilities by length to this power; default 1."
    )
    response_format: ResponseFormat | None = Field(None, description="What the text is to be.")
    structured_outputs: StructuredOutputs | None = Field(None, description="The same, for other forms than JSON.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    determinism: Level | None = Field(None, description="The level that must be promised.")
    return_token_ids: bool | None = Field(None, description="Add prompt_token_ids, and token_ids of each choice.")
    # Without effect on the answer, and accepted for that reason:
    user: str | None = None
    metadata: Metadata | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
