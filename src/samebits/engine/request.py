"""Requests, their state while they run, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from samebits.engine.constraint import Constraint
from samebits.engine.history import History
from samebits.engine.params import SamplingParams
from samebits.engine.prompt_scores import PromptScores
from samebits.engine.stops import StopMatcher
from samebits.engine.top_logprobs import TopLogprob
from samebits.errors import SamebitsError

FinishReason = Literal["stop", "length", "cancelled", "error"]


class TextStream(Protocol):
    """Turns token ids into text piece by piece; a character is given out when its last byte has come."""

    def push(self, token_id: int) -> str: ...
    def finish(self) -> str: ...


@dataclass(frozen=True)
class Request:
    """One prompt and how to continue it.

    Attributes:
        prompt_token_ids: at least one id.
        params: sampling parameters, used as they are; ``params.n`` choices are generated.
        origins: where each parameter came from (engine/resolve.py), handed on to the completions.
        new_stream: makes what turns ids into text, for each choice; None for the engine's own.
        constraint: what the output may be. Each choice works on a fork of it; this one is never changed.
    """

    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    origins: Mapping[str, str] = field(default_factory=dict)
    new_stream: Callable[[], TextStream] | None = None
    constraint: Constraint | None = None


@dataclass(frozen=True)
class Completion:
    """One finished choice.

    Attributes:
        index: which of n.
        text: the output without stop texts and special tokens.
        token_ids: all generated ids, a final end-of-text or stop id included.
        logprobs: (len(token_ids),) float32, or None when not asked for.
        top_logprobs: per token, the asked number of best ids; None when not asked for.
        finish_reason: ``stop``, ``length``, ``cancelled`` or ``error``.
        stop_reason: the stop text or stop id that ended it, if one did.
        seed: the one given, or drawn; None when none was given and none needed (temperature 0).
        cached_prompt_tokens: prompt tokens whose keys and values came from the prefix cache.
        params: the parameters it ran with.
        origins: where each of them came from, as the request said; empty when it said nothing.
        error: why it failed, with finish_reason ``error``.
        prefill_chunks: pieces in which the rest of the prompt was computed, those since the last preemption.
        prompt_scores: log-probabilities of the prompt's tokens; None when not asked for, or not complete.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32] | None
    top_logprobs: tuple[tuple[TopLogprob, ...], ...] | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    seed: int | None
    cached_prompt_tokens: int
    params: SamplingParams
    origins: Mapping[str, str]
    error: SamebitsError | None = None
    prefill_chunks: int = 0
    prompt_scores: PromptScores | None = None


@dataclass(frozen=True)
class Event:
    """What one step added to one choice.

    Attributes:
        request_id: the id that ``Engine.add`` returned.
        index: which of n.
        token_id: the new token; None when the choice ended without one (cancelled or failed).
        text: text that may be shown now.
        completion: set on the last event of the choice.
        logprob: the token's log-probability; None when not asked for.
        top_logprobs: the asked number of best ids beside it.
        prompt_scores: with the first token, if asked for: log-probabilities of the prompt's tokens.
    """

    request_id: int
    index: int
    token_id: int | None
    text: str
    completion: Completion | None = None
    logprob: float | None = None
    top_logprobs: tuple[TopLogprob, ...] = ()
    prompt_scores: PromptScores | None = None


@dataclass(eq=False)
class Sequence:
    """One choice while it waits or runs. Owned and changed by the engine alone.

    Invariant: the first ``computed`` tokens have keys and values in ``pages``.
    """

    key: int
    request_id: int
    index: int
    params: SamplingParams
    seed: int | None
    tokens: list[int]
    prompt_length: int
    max_total: int
    stream: TextStream
    stops: StopMatcher
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)  # of the full pages of `tokens`, as far as computed so far
    cached_prompt_tokens: int | None = None
    chunks: int = 0
    text: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[tuple[TopLogprob, ...]] = field(default_factory=list)
    followers: list[Sequence] = field(default_factory=list)
    history: History = field(default_factory=History)
    origins: Mapping[str, str] = field(default_factory=dict)
    constraint: Constraint | None = None
    scores: PromptScores | None = None  # shared by the choices of a request; the first one fills it

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_length :]

    def completion(
        self, reason: FinishReason, stop_reason: str | int | None = None, error: SamebitsError | None = None
    ) -> Completion:
        """The choice as it stands, as a result."""
        wanted = self.params.logprobs is not None
        return Completion(
            index=self.index,
            text="".join(self.text),
            token_ids=tuple(self.output),
            logprobs=np.asarray(self.logprobs, np.float32) if wanted else None,
            top_logprobs=tuple(self.top_logprobs) if wanted else None,
            finish_reason=reason,
            stop_reason=stop_reason,
            seed=self.seed,
            cached_prompt_tokens=self.cached_prompt_tokens or 0,
            params=self.params,
            origins=self.origins,
            prefill_chunks=self.chunks,
            prompt_scores=self.scores if self.scores is not None and self.scores.complete else None,
            error=error,
        )
