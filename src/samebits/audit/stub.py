"""A target with a known fault, as a pure function: what the statistics must find, and nothing else.

`StubModel` answers one request; a test server can be put around it. `simulate` runs a whole factorial design on it
without any server. Everything follows from seeds.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from samebits.audit.observation import Evidence, Observation, Timing, as_condition
from samebits.errors import InputError

Cause = Literal["always", "concurrency", "load", "prefix", "streaming", "order", "time", "fingerprint"]

WORDS: Final = tuple(consonant + vowel for consonant in "bdfgklmnprst" for vowel in "ao")
ANSWER_TOKENS: Final = 16
PROMPT_TOKENS: Final = 64
CHUNK: Final = 32
REPLICAS: Final = ("stub-a", "stub-b")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong with the target.

    Attributes:
        cause: the circumstance under which answers flip; see `Seen`. ``always``: under all. ``fingerprint``: the second
            of two replicas, which share the requests by chance.
        rate: chance that a request flips where the cause is met.
        variants: how many other answers a flip may give.
        part: what flips: the text, or only the last bits of the log-probabilities.
        since: for cause ``time``: from which second on.

    Raises:
        InputError: a rate outside [0, 1], or no variant.
    """

    cause: Cause = "always"
    rate: float = 0.0
    variants: int = 1
    part: Literal["text", "logprobs"] = "text"
    since: float = 3600.0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1 or self.variants < 1:
            raise InputError(
                f"rate {self.rate}, {self.variants} variants", field="fault", remedy="Give 0 to 1, and 1 or more."
            )


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a server can see of a request's circumstances.

    Attributes:
        in_flight: requests of the experiment in flight, this one included.
        background: other requests in flight.
        cached: whether the prompt's prefix is in the cache.
        streamed: whether the answer goes out as events.
        order: in which order of the prompts it came.
        elapsed: seconds since the server began.
    """

    in_flight: int = 1
    background: int = 0
    cached: bool = False
    streamed: bool = False
    order: int = 0
    elapsed: float = 0.0


@dataclass(frozen=True)
class StubAnswer:
    """An answer; `flipped` is the truth that the statistics do not see."""

    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    fingerprint: str
    flipped: bool

    @property
    def text(self) -> str:
        """The tokens in one piece."""
        return "".join(self.tokens)


@dataclass(frozen=True)
class StubModel:
    """A model whose answer depends on the prompt, and, at the rate of its fault, on more than that."""

    fault: Fault = field(default_factory=Fault)
    seed: int = 0

    def answer(self, prompt: str, seen: Seen, ticket: int) -> StubAnswer:
        """The answer to one request.

        Args:
            prompt: its text; equal prompts have one proper answer.
            seen: its circumstances.
            ticket: a number that no other request of this model has; chance comes from it.
        """
        chance, replica, variant = _draws(f"{self.seed} {ticket} {prompt}")
        fault, second = self.fault, self.fault.cause == "fingerprint" and replica < 0.5
        flipped = chance < fault.rate and self._met(seen, second)
        wrong = 1 + int(variant * fault.variants) if flipped else 0
        ids = _answer_ids(prompt, wrong if fault.part == "text" else 0)
        return StubAnswer(
            token_ids=ids,
            tokens=tuple((" " if i else "") + WORDS[t] for i, t in enumerate(ids)),
            logprobs=_logprobs(prompt, wrong),
            fingerprint=REPLICAS[second],
            flipped=flipped,
        )

    def _met(self, seen: Seen, second_replica: bool) -> bool:
        return {
            "always": True,
            "concurrency": seen.in_flight > 1,
            "load": seen.background > 0,
            "prefix": seen.cached,
            "streaming": seen.streamed,
            "order": seen.order > 0,
            "time": seen.elapsed >= self.fault.since,
            "fingerprint": second_replica,
        }[self.fault.cause]


@dataclass(frozen=True, kw_only=True)
class Design:
    """A full factorial experiment.

    Attributes:
        prompts: number of prompts.
        runs: of each prompt under each combination of levels.
        levels: factor → levels, of the factors of `observation.FACTORS`.
    """

    prompts: int = 8
    runs: int = 4
    levels: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"load": ("off", "on"), "prefix": ("cold", "warm"), "time": ("0", "1")}
    )

    @property
    def size(self) -> int:
        """All runs."""
        return self.prompts * self.runs * math.prod(map(len, self.levels.values()))


def simulate(model: StubModel, design: Design, target: str = "stub") -> Iterator[Observation]:
    """Runs a design: one observation for each request, with the evidence that a server would give.

    Blocks of time follow each other, an hour apart; so does everything within them.
    """
    factors = sorted(design.levels)
    ticket = 0
    for levels in itertools.product(*(design.levels[f] for f in factors)):
        chosen = dict(zip(factors, levels, strict=True))
        condition, seen = as_condition(chosen), seen_under(chosen)
        evidence = Evidence(
            in_flight=seen.in_flight,
            background=seen.background,
            prompt_tokens=PROMPT_TOKENS,
            cached_tokens=PROMPT_TOKENS // 2 if seen.cached else 0,
            completion_tokens=ANSWER_TOKENS,
            prefill_chunks=1 if seen.cached else PROMPT_TOKENS // CHUNK,
            stream_events=ANSWER_TOKENS if seen.streamed else None,
        )
        for run, number in itertools.product(range(design.runs), range(design.prompts)):
            prompt_id = f"p{number:03d}"
            answer = model.answer(prompt_id, seen, ticket)
            yield Observation(
                target=target,
                prompt_id=prompt_id,
                run=run,
                condition=condition,
                text=answer.text,
                token_ids=answer.token_ids,
                tokens=answer.tokens,
                logprobs=answer.logprobs,
                finish_reason="stop",
                answer=answer.tokens[-1].strip(),
                correct=not answer.flipped or model.fault.part != "text",
                fingerprint=answer.fingerprint,
                evidence=evidence,
                timing=Timing(started=seen.elapsed + ticket / 1000, total_s=0.01),
            )
            ticket += 1


def seen_under(levels: Mapping[str, str]) -> Seen:
    """The circumstances that a server sees where the levels are met."""
    return Seen(
        in_flight=int(levels.get("concurrency", "1")),
        background=4 if levels.get("load") == "on" else 0,
        cached=levels.get("prefix") == "warm",
        streamed=levels.get("streaming") == "on",
        order=int(levels.get("order", "0")),
        elapsed=3600.0 * int(levels.get("time", "0")),
    )


def _draws(key: str) -> tuple[float, float, float]:
    """Three numbers in [0, 1) that depend on the key alone."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=24).digest()
    first, second, third = (int.from_bytes(digest[i : i + 6], "little") / 2**48 for i in (0, 8, 16))
    return first, second, third


@lru_cache(maxsize=4096)
def _answer_ids(prompt: str, wrong: int) -> tuple[int, ...]:
    """The proper answer (0), or a wrong one that parts from it at a place of its own and has another last token."""
    ids = [int(_draws(f"token {i} {prompt}")[0] * len(WORDS)) for i in range(ANSWER_TOKENS)]
    if wrong:
        place = int(_draws(f"place {wrong} {prompt}")[0] * (ANSWER_TOKENS - 1))
        # Steps of 1 to len(WORDS) − 1 never lead back to the proper token; each variant takes another one at the end.
        for i in range(place, ANSWER_TOKENS):
            ids[i] = (ids[i] + 1 + (wrong - 1 + i) % (len(WORDS) - 1)) % len(WORDS)
    return tuple(ids)


@lru_cache(maxsize=4096)
def _logprobs(prompt: str, wrong: int) -> tuple[float, ...]:
    """Log-probabilities of the proper answer, or those of a wrong one, off by some bits from the beginning."""
    proper = (-0.05 - _draws(f"score {i} {prompt}")[0] for i in range(ANSWER_TOKENS))
    return tuple(score - wrong * 2.0**-20 for score in proper)
