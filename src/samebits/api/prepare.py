"""From the fields of a request to a job: every limit that can be checked is checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samebits.api.beams import Beams, beams_of
from samebits.api.job import Job
from samebits.api.promise import promised_level
from samebits.api.schema_common import MOST_PROMPTS, Sampling
from samebits.api.served import Served
from samebits.api.service import Service
from samebits.errors import InputError
from samebits.gateway.levels import Level
from samebits.structured import Grammar

_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "n",
    "stop",
    "stop_token_ids",
    "ignore_eos",
)


@dataclass(frozen=True)
class Wanted:
    """What a request wants of the engine.

    Attributes:
        explicit: sampling parameters that it gives, by their names in SamplingParams.
        max_tokens: the route's own default, for models that bring none along; None is the context's end.
        determinism: the level that it asks for.
        beams: the search that it asks for instead of sampling.
    """

    explicit: Mapping[str, Any]
    max_tokens: int | None
    determinism: Level | None
    beams: Beams | None = None


def given(values: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """What is not null: null means the default."""
    return {name: value for name, value in (dict(values) | others).items() if value is not None}


def wanted_of(
    body: Sampling,
    *,
    max_tokens: int | None,
    default: int | None,
    top_logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> Wanted:
    """What the common fields of a request on the /v1 routes want.

    Raises:
        InputError: fields contradict each other.
    """
    if body.stream_options is not None and not body.stream:
        raise InputError("needs stream", field="stream_options", remedy="Set stream to true, or leave it out.")
    bias = None if body.logit_bias is None else {int(key): value for key, value in body.logit_bias.items()}
    values = {name: getattr(body, name) for name in _SAMPLING}
    explicit = given(
        values, max_tokens=max_tokens, logit_bias=bias, logprobs=top_logprobs, prompt_logprobs=prompt_logprobs
    )
    return Wanted(explicit, default, body.determinism, beams_of(body, explicit))


def prepare_job(
    service: Service,
    served: Served,
    prompts: Sequence[Sequence[int]],
    wanted: Wanted,
    *,
    rendered_sha256: str | None = None,
    grammar: Grammar | None = None,
    shown: frozenset[int] = frozenset(),
) -> Job:
    """A job of prompts and what is wanted of them. Effective parameters: the request's own, else those that the model
    brings along, else the route's, else samebits'.

    Args:
        rendered_sha256: of the text of a conversation.
        grammar: what each choice must be.
        shown: special tokens that are text in this answer.

    Raises:
        InputError: a value is out of range, or the level cannot be promised.
    """
    level = promised_level(wanted.determinism, service.config.determinism, served.llm.profile)
    # Log-probabilities are always computed: their digest is part of every answer.
    explicit = {"logprobs": 0} | dict(wanted.explicit)
    by_route = not ("max_tokens" in explicit or "max_tokens" in served.llm.generation_defaults.values)
    if by_route:
        explicit["max_tokens"] = wanted.max_tokens
    if wanted.beams is None:
        effective = served.llm.resolve(explicit)
    else:
        effective = wanted.beams.resolve(explicit, served.llm.generation_defaults.values)
    choices = len(prompts) * (effective.params.n if wanted.beams is None else wanted.beams.width)
    if choices > MOST_PROMPTS:  # each repeats parts of the request in the answer
        raise InputError(
            f"{choices} choices or beams of {len(prompts)} prompts are too many for one request",
            field="n" if wanted.beams is None else "best_of",
            remedy=f"Ask for at most {MOST_PROMPTS} in all.",
        )
    origins = dict(effective.origins) | ({"max_tokens": "route"} if by_route else {})
    return Job(
        served=served,
        prompts=tuple(map(tuple, prompts)),
        params=effective.params,
        origins=origins,
        level=level,
        timeout=service.config.request_timeout,
        metrics=service.metrics,
        beams=wanted.beams,
        rendered_sha256=rendered_sha256,
        grammar=grammar,
        shown=shown,
    )
