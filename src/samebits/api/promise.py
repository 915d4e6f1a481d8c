"""The promise behind an answer: which level it can have, and the digests by which it is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from samebits.engine import Completion
from samebits.errors import InputError
from samebits.gateway.levels import LEVELS, Level
from samebits.numerics import digest_array

# Between the choices in a digest of several: no id is negative, and no log-probability is positive.
ID_SEPARATOR: Final = -1
LOGPROB_SEPARATOR: Final = 1.0


def strongest_level(profile: str) -> Level:
    """What the embedded engine gives under a profile."""
    return "none" if profile == "vendor" else "portable"


def promised_level(asked: Level | None, default: Level | None, profile: str) -> Level:
    """The level of an answer: the one asked for, else the server's, else the strongest.

    Raises:
        InputError: it is stronger than what the model's profile gives.
    """
    strongest = strongest_level(profile)
    level = asked or default or strongest
    if LEVELS.index(level) > LEVELS.index(strongest):
        raise InputError(
            f"{level!r} cannot be promised under the profile {profile}",
            field="determinism",
            remedy=f"Ask for {strongest!r} at most, or for another model.",
        )
    return level


def ids_digest(lists: Sequence[Sequence[int]]) -> str:
    """Digest of token ids: int32, with −1 between one list and the next (docs/guide/server.md)."""
    joined: list[int] = []
    for i, ids in enumerate(lists):
        joined += [ID_SEPARATOR] * (i > 0)
        joined += ids
    return digest_array(np.asarray(joined, np.int32))


def logprobs_digest(completions: Sequence[Completion]) -> str:
    """Digest of the bits of all log-probabilities: float32, with +1 between one choice and the next."""
    parts: list[Any] = []
    for i, completion in enumerate(completions):
        assert completion.logprobs is not None, "log-probabilities were not asked for"
        parts += [np.asarray([LOGPROB_SEPARATOR], np.float32)] * (i > 0)
        parts.append(completion.logprobs)
    return digest_array(np.concatenate(parts))
