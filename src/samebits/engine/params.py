"""What a request may ask for, validated once."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from samebits.errors import InputError, shown

SEED_MIN, SEED_MAX = -(2**63), 2**63 - 1
MAX_STOPS = 16
MAX_STOP_LENGTH = 1_000  # characters; the end of a text is compared with every beginning of a stop
MAX_STOP_IDS = 1_024  # each new token is looked up among them
MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 128


def check_number(name: str, value: Any, low: float, high: float, *, above: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == math.inf:
        raise InputError(f"{shown(value)} is not a finite number", field=name, remedy=f"Give {low} to {high}.")
    if not (low < value if above else low <= value) or value > high:
        bound = "above" if above else "from"
        raise InputError(
            f"{shown(value)} is out of range", field=name, remedy=f"Give a number {bound} {low} to {high}."
        )


def check_integer(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(
            f"{shown(value)} is not an integer in range", field=name, remedy=f"Give an integer from {low} to {high}."
        )


def draw_seed() -> int:
    """A seed for a request that gives none: 63 random bits."""
    return secrets.randbits(63)


def _plain(value: Any) -> Any:
    """A scalar of numpy as the Python number of the same value; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to continue one prompt. The defaults are greedy, so that nothing is random unless asked for.

    Which parameters were given is remembered: a model's own defaults may stand in for the others (engine/resolve.py).
    So two objects are equal only if the same ones were given. ``dataclasses.replace`` gives all.

    Attributes:
        max_tokens: most tokens to generate; None means up to the context's end.
        temperature: 0 is greedy; otherwise logits are divided by it (0 to 2).
        top_k: keep the k best ids; 0 keeps all.
        top_p: keep the shortest prefix of best ids with this share of the probability.
        min_p: keep ids with at least this fraction of the best one's probability.
        repetition_penalty: divides (or multiplies, if negative) logits of ids seen in prompt or output.
        presence_penalty: subtracted once from logits of ids in the output (-2 to 2).
        frequency_penalty: subtracted for each occurrence in the output (-2 to 2).
        logit_bias: id → addend (-100 to 100), also under greedy.
        seed: 64-bit signed integer; 0 and -1 are seeds like any other. None draws one and records it.
        n: choices; choice i of a seed does not depend on n.
        stop: at most 16 texts that end the output, of up to 1,000 characters each; they are not part of it. The
            earliest ends it, of those that begin together the shortest.
        stop_token_ids: at most 1,024 ids that end the output, besides the model's own.
        ignore_eos: go on after the model's end-of-text ids.
        logprobs: None, or how many best ids (0 to 20) to report beside each chosen token's log-probability. They
            are those of the model: before penalties, bias, temperature and truncation.
        prompt_logprobs: None, or how many best ids (0 to 20) to report beside the log-probability of each token of the
            prompt but the first. The prompt is then computed in full, not taken from the prefix cache.
        given: names of the parameters that were passed, also those passed with their default.

    Scalars of numpy are taken as the Python numbers of the same value.

    Raises:
        InputError: an unknown name, a value of the wrong type or out of range.
    """

    max_tokens: int | None = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    n: int = 1
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    given: frozenset[str] = field(init=False, repr=False)

    def __new__(cls, *unnamed: Any, **values: Any) -> Self:
        if unnamed:
            raise InputError(
                f"{shown(unnamed[0])} has no name", field="params", remedy="Name it, as in SamplingParams(seed=1)."
            )
        for name in values:
            if name not in PARAMETERS:
                raise InputError(
                    "unknown sampling parameter", field=str(name), remedy=f"Known: {', '.join(sorted(PARAMETERS))}."
                )
        self = super().__new__(cls)
        object.__setattr__(self, "given", frozenset(values))
        return self

    def __post_init__(self) -> None:
        for name in PARAMETERS:
            object.__setattr__(self, name, _plain(getattr(self, name)))
        if self.max_tokens is not None:
            check_integer("max_tokens", self.max_tokens, 1, 2**31 - 1)
        check_number("temperature", self.temperature, 0, 2)
        check_integer("top_k", self.top_k, 0, 2**31 - 1)
        check_number("top_p", self.top_p, 0, 1, above=True)
        check_number("min_p", self.min_p, 0, 1)
        check_number("repetition_penalty", self.repetition_penalty, 0, 10, above=True)
        check_number("presence_penalty", self.presence_penalty, -2, 2)
        check_number("frequency_penalty", self.frequency_penalty, -2, 2)
        if self.seed is not None:
            check_integer("seed", self.seed, SEED_MIN, SEED_MAX)
        check_integer("n", self.n, 1, MAX_CHOICES)
        if not isinstance(self.ignore_eos, bool):
            raise InputError(
                f"{shown(self.ignore_eos)} is not a bool", field="ignore_eos", remedy="Give true or false."
            )
        if self.logprobs is not None:
            check_integer("logprobs", self.logprobs, 0, MAX_TOP_LOGPROBS)
        if self.prompt_logprobs is not None:
            check_integer("prompt_logprobs", self.prompt_logprobs, 0, MAX_TOP_LOGPROBS)
        self._check_stops()
        self._check_bias()

    def _check_stops(self) -> None:
        stops = (self.stop,) if isinstance(self.stop, str) and self.stop else self.stop
        if not isinstance(stops, Sequence) or len(stops) > MAX_STOPS:
            raise InputError(
                "not a text or a list of texts", field="stop", remedy=f"Give at most {MAX_STOPS} non-empty texts."
            )
        if any(not isinstance(s, str) or not s for s in stops):
            raise InputError("holds something that is not a non-empty text", field="stop", remedy="Remove it.")
        if any(len(s) > MAX_STOP_LENGTH for s in stops):
            raise InputError(
                f"holds a text of more than {MAX_STOP_LENGTH} characters", field="stop", remedy="Shorten it."
            )
        object.__setattr__(self, "stop", tuple(stops))
        if not isinstance(self.stop_token_ids, list | tuple):
            raise InputError("not a list", field="stop_token_ids", remedy="Give a list of token ids.")
        if len(self.stop_token_ids) > MAX_STOP_IDS:
            raise InputError(
                f"holds {len(self.stop_token_ids)} ids", field="stop_token_ids", remedy=f"Give at most {MAX_STOP_IDS}."
            )
        ids = tuple(map(_plain, self.stop_token_ids))
        for token in ids:
            check_integer("stop_token_ids", token, 0, 2**31 - 1)
        object.__setattr__(self, "stop_token_ids", ids)

    def _check_bias(self) -> None:
        if self.logit_bias is None:
            return
        if not isinstance(self.logit_bias, Mapping):
            raise InputError("not a mapping", field="logit_bias", remedy="Map token ids to numbers.")
        biases = {_plain(token): _plain(bias) for token, bias in self.logit_bias.items()}
        for token, bias in biases.items():  # perhaps the whole vocabulary: no message is made for what is right
            if type(token) is not int or not 0 <= token < 2**31:
                check_integer("logit_bias", token, 0, 2**31 - 1)
            if type(bias) not in (int, float) or not -100 <= bias <= 100:
                check_number(f"logit_bias[{token}]", bias, -100, 100)
        object.__setattr__(self, "logit_bias", dict(sorted(biases.items())))

    @cached_property
    def biased_ids(self) -> npt.NDArray[np.int64]:
        """The ids of ``logit_bias``, ascending. Kept, since a bias may name the whole vocabulary."""
        return np.fromiter(self.logit_bias or (), np.int64)

    @cached_property
    def biases(self) -> npt.NDArray[np.float32]:
        """The numbers of ``logit_bias`` in the order of ``biased_ids``, each rounded to binary32."""
        return np.fromiter((self.logit_bias or {}).values(), np.float32)

    @property
    def explicit(self) -> dict[str, Any]:
        """The parameters that were given, by name, in the order of the fields."""
        return {name: getattr(self, name) for name in PARAMETERS if name in self.given}

    def check_vocabulary(self, size: int) -> None:
        """Raises InputError for token ids outside the model's vocabulary."""
        for name in ("logit_bias", "stop_token_ids"):
            token = max(getattr(self, name) or (0,))
            if token >= size:
                raise InputError(
                    f"token id {token} is outside the vocabulary",
                    field=name,
                    remedy=f"Ids go from 0 to {size - 1}.",
                )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SamplingParams:
        """From named values, refusing unknown names (InputError)."""
        if not isinstance(values, Mapping):
            raise InputError(
                f"{shown(values)} is not a mapping", field="params", remedy="Map names of parameters to values."
            )
        return cls(**{str(name): value for name, value in values.items()})


PARAMETERS = tuple(f.name for f in fields(SamplingParams) if f.init)
