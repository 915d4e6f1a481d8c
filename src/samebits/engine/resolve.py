"""What a request really runs with: its own parameters, else the model's defaults, else those of samebits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from samebits.engine.params import PARAMETERS, SamplingParams
from samebits.errors import InputError
from samebits.models.generation_defaults import Default

REQUEST: Final = "request"
SAMEBITS: Final = "samebits"


@dataclass(frozen=True)
class Effective:
    """Parameters in full.

    Attributes:
        params: every parameter's value, each counted as given: with these parameters any model is asked the same.
        origins: for every parameter ``request``, ``samebits``, or the model's file and key that it came from, as in
            ``generation_config.json: top_k``.
    """

    params: SamplingParams
    origins: Mapping[str, str]


def resolve(explicit: Mapping[str, Any], defaults: Mapping[str, Default]) -> Effective:
    """Fills up what a request gives.

    Args:
        explicit: the parameters that the request gives, by name. These always win, whatever else the model's file says.
        defaults: the model's (``GenerationDefaults.values``).

    Raises:
        InputError: an unknown name or wrong value, or a default of the model that is needed and out of range.
    """
    origins = dict.fromkeys(PARAMETERS, SAMEBITS)
    values = SamplingParams.from_mapping(explicit).explicit
    origins.update(dict.fromkeys(values, REQUEST))
    for name, default in defaults.items():
        if name not in values:
            _check(name, default)
            values[name] = default.value
            origins[name] = default.origin
    full = SamplingParams(**values)
    return Effective(SamplingParams(**{name: getattr(full, name) for name in PARAMETERS}), origins)


def describe(params: SamplingParams, origins: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Each parameter's value and origin, by name, of types that JSON has."""
    described = {}
    for name in PARAMETERS:
        value = getattr(params, name)
        if isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Mapping):
            value = {str(token): bias for token, bias in value.items()}
        described[name] = {"value": value, "origin": origins[name]}
    return described


def _check(name: str, default: Default) -> None:
    try:
        SamplingParams.from_mapping({name: default.value})
    except InputError as error:
        raise InputError(
            f"the model's default {default.value!r} ({default.origin}) cannot be used",
            field=name,
            remedy=f"Give a value of your own, or correct the model's file. {error.remedy}",
        ) from error
