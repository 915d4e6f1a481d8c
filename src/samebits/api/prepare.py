"""From the fields of a request to a job: every limit that can be checked is checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from samebits.api.job import Job
from samebits.api.promise import promised_level
from samebits.api.schema_common import Sampling
from samebits.api.service import Served, Service
from samebits.engine import SamplingParams
from samebits.errors import InputError


def prepare_job(
    service: Service, served: Served, prompts: Sequence[Sequence[int]], values: Mapping[str, Any], body: Sampling
) -> Job:
    """A job of prompts and named sampling parameters.

    Raises:
        InputError: a value is out of range, or the level cannot be promised.
    """
    if body.stream_options is not None and not body.stream:
        raise InputError("needs stream", field="stream_options", remedy="Set stream to true, or leave it out.")
    level = promised_level(body.determinism, service.config.determinism, served.llm.profile)
    given = dict(values)
    if body.logit_bias is not None:
        given["logit_bias"] = {_token_id(key): bias for key, bias in body.logit_bias.items()}
    given["logprobs"] = given.get("logprobs") or 0  # their digest is part of every answer
    return Job(
        served=served,
        prompts=tuple(map(tuple, prompts)),
        params=SamplingParams.from_mapping(given),
        level=level,
        timeout=service.config.request_timeout,
    )


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 20):
        raise InputError(f"{key!r:.60} is not a token id", field="logit_bias", remedy='Use ids such as "500".')
    return int(key)
