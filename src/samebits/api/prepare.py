"""From the fields of a request to a job: every limit that can be checked is checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samebits.api.config import Level
from samebits.api.job import Job
from samebits.api.promise import promised_level
from samebits.api.schema_common import Sampling
from samebits.api.served import Served
from samebits.api.service import Service
from samebits.errors import InputError

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
    """

    explicit: Mapping[str, Any]
    max_tokens: int | None
    determinism: Level | None


def given(values: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """What is not null: null means the default."""
    return {name: value for name, value in (dict(values) | others).items() if value is not None}


def wanted_of(body: Sampling, *, max_tokens: int | None, default: int | None, top_logprobs: int | None) -> Wanted:
    """What the common fields of a request on the /v1 routes want.

    Raises:
        InputError: fields contradict each other, or a key of logit_bias is not a token id.
    """
    if body.stream_options is not None and not body.stream:
        raise InputError("needs stream", field="stream_options", remedy="Set stream to true, or leave it out.")
    bias = None if body.logit_bias is None else {_token_id(key): value for key, value in body.logit_bias.items()}
    values = {name: getattr(body, name) for name in _SAMPLING}
    explicit = given(values, max_tokens=max_tokens, logit_bias=bias, logprobs=top_logprobs)
    return Wanted(explicit, default, body.determinism)


def prepare_job(service: Service, served: Served, prompts: Sequence[Sequence[int]], wanted: Wanted) -> Job:
    """A job of prompts and what is wanted of them. Effective parameters: the request's own, else those that the model
    brings along, else the route's, else samebits'.

    Raises:
        InputError: a value is out of range, or the level cannot be promised.
    """
    level = promised_level(wanted.determinism, service.config.determinism, served.llm.profile)
    # Log-probabilities are always computed: their digest is part of every answer.
    explicit = {"logprobs": 0} | dict(wanted.explicit)
    by_route = not ("max_tokens" in explicit or "max_tokens" in served.llm.generation_defaults.values)
    if by_route:
        explicit["max_tokens"] = wanted.max_tokens
    effective = served.llm.resolve(explicit)
    origins = dict(effective.origins) | ({"max_tokens": "route"} if by_route else {})
    return Job(
        served=served,
        prompts=tuple(map(tuple, prompts)),
        params=effective.params,
        origins=origins,
        level=level,
        timeout=service.config.request_timeout,
        metrics=service.metrics,
    )


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 20):
        raise InputError(f"{key!r:.60} is not a token id", field="logit_bias", remedy='Use ids such as "500".')
    return int(key)
