"""The routes that generate, and what their parameters are called: one table for policies, records and replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"
GENERATE: Final = "/generate"
# What a parameter is called on each route, where that is not everywhere the same. Several names on one route are one
# parameter; the first is the one that is set where nothing says which.
_NAMES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "max_tokens": {
        CHAT: ("max_tokens", "max_completion_tokens"),
        COMPLETIONS: ("max_tokens",),
        RESPONSES: ("max_output_tokens",),
        GENERATE: ("max_new_tokens",),
    },
    "seed": {GENERATE: ("sampling_seed",)},
}
_PLAIN: Final[Mapping[str, str]] = {
    spelled: plain for plain, routes in _NAMES.items() for names in routes.values() for spelled in names
}
# Parameters that a route has in another form, so that a value made for the others does not fit; and where they are.
OTHER_FORM: Final[Mapping[str, Mapping[str, str]]] = {
    RESPONSES: {"response_format": "text.format", "reasoning_effort": "reasoning.effort", "verbosity": "text.verbosity"}
}


def plain_name(name: str) -> str:
    """The name of a parameter without regard to routes: that of ``SamplingParams``, where it has it."""
    return _PLAIN.get(name, name)


def names_on(path: str, name: str) -> tuple[str, ...]:
    """The names under which a route takes a parameter, whatever route it was named for."""
    plain = plain_name(name)
    return _NAMES.get(plain, {}).get(path, (plain,))
