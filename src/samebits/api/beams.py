"""Beam search over HTTP: ``use_beam_search``, ``best_of``, ``length_penalty`` (docs/guide/beam-search.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from samebits.api.schema_common import Sampling
from samebits.engine import BeamCompletion, BeamParams, Completion, Effective, SamplingParams, resolve
from samebits.errors import InputError
from samebits.models.generation_defaults import Default

# Parameters that a search and sampling have in common. A seed is taken, since nothing is drawn.
_IN_COMMON: Final = frozenset({"n", "max_tokens", "logprobs", "seed", "temperature"})


@dataclass(frozen=True)
class Beams:
    """What a request says of its search.

    Attributes:
        explicit: the fields that it gives, by name.
    """

    width: int
    length_penalty: float
    explicit: frozenset[str]

    def resolve(self, explicit: Mapping[str, Any], defaults: Mapping[str, Default]) -> Effective:
        """Parameters in full. Of the model's defaults only ``max_tokens`` counts: the others are about sampling."""
        known = {name: default for name, default in defaults.items() if name == "max_tokens"}
        return resolve({"temperature": 0.0} | dict(explicit), known)

    def params(self, effective: SamplingParams) -> BeamParams:
        """The parameters of the search."""
        return BeamParams(
            width=self.width,
            n=effective.n,
            max_tokens=effective.max_tokens,
            length_penalty=self.length_penalty,
            top_logprobs=effective.logprobs or 0,
        )

    def described(self) -> dict[str, dict[str, Any]]:
        """Values and origins, as the block ``samebits`` shows those of other parameters."""
        values = {"use_beam_search": True, "best_of": self.width, "length_penalty": self.length_penalty}
        return {
            name: {"value": value, "origin": "request" if name in self.explicit else "samebits"}
            for name, value in values.items()
        }


def beams_of(body: Sampling, explicit: Mapping[str, Any]) -> Beams | None:
    """The search that a request asks for, if it does.

    Args:
        explicit: the sampling parameters that it gives.

    Raises:
        InputError: a field needs a search and there is none, or does not go with one.
    """
    given = {n: v for n in ("use_beam_search", "best_of", "length_penalty") if (v := getattr(body, n)) is not None}
    if not body.use_beam_search:
        for name in ("best_of", "length_penalty"):
            if name in given:
                raise InputError("needs use_beam_search", field=name, remedy="Set that to true, or leave this out.")
        return None
    for name, value in explicit.items():
        if name not in _IN_COMMON or (name == "temperature" and value != 0):
            raise InputError(
                "does not go with use_beam_search, which draws nothing and goes by the model's own log-probabilities",
                field="echo" if name == "prompt_logprobs" else name,
                remedy="Leave one of them out.",
            )
    if body.stream:
        raise InputError(
            "does not go with use_beam_search: no token is certain before the end",
            field="stream",
            remedy="Leave one of them out.",
        )
    n = explicit.get("n", 1)
    width = given.get("best_of", n)
    if n > width:
        raise InputError(f"{n} is more than best_of, {width}", field="n", remedy="Ask for at most best_of answers.")
    return Beams(width, given.get("length_penalty", 1.0), frozenset(given))


def beam_fields(completion: Completion) -> dict[str, Any]:
    """What a choice of a search has besides: its score, and the sum of log-probabilities that this is made of."""
    if isinstance(completion, BeamCompletion):
        return {"beam": {"score": completion.score, "logprob": completion.total}}
    return {}
