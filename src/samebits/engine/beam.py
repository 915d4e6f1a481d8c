"""Beam search (docs/numerics.md 4.3): the algorithm alone, and a loop that drives it through an engine.

A search never sees a batch: it asks for the best ids after each of its beams, as requests of one token, and is given
them. So neither its width nor its neighbours can reach a score, and the engine's prefix cache shares what beams share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Final

import numpy as np

from samebits.engine.engine import Engine
from samebits.engine.params import MAX_TOP_LOGPROBS, SamplingParams, check_integer, check_number
from samebits.engine.request import Completion, Event, Request
from samebits.engine.top_logprobs import TopLogprob
from samebits.errors import InputError, SamebitsError

# One beam can supply all that survive, and the end ids before them: width + end ids best ids are asked for, of at most
# MAX_TOP_LOGPROBS. Llama 3.1, the most of any model known, has 3 end ids.
MAX_WIDTH: Final = 16
_DIGITS: Final = 50  # of n^α: a binary64 has 17, and a wrong rounding would need the next 33 to be all 0 or all 9


@dataclass(frozen=True, kw_only=True)
class BeamParams:
    """How to search.

    Attributes:
        width: beams kept, 1 to 16.
        n: best hypotheses to return, 1 to width.
        max_tokens: longest hypothesis; None means up to the context's end.
        length_penalty: α of section 4.3, −2 to 2; 0 compares sums, 1 means.
        top_logprobs: how many best ids (0 to 20) to report beside each id.

    Raises:
        InputError: a value of the wrong type or out of range.
    """

    width: int
    n: int = 1
    max_tokens: int | None = 256
    length_penalty: float = 1.0
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        check_integer("width", self.width, 1, MAX_WIDTH)
        check_integer("n", self.n, 1, MAX_WIDTH)
        if self.n > self.width:
            raise InputError(
                f"{self.n} hypotheses of {self.width} beams", field="n", remedy=f"Ask for at most {self.width}."
            )
        if self.max_tokens is not None:
            check_integer("max_tokens", self.max_tokens, 1, 2**31 - 1)
        check_number("length_penalty", self.length_penalty, -2, 2)
        check_integer("top_logprobs", self.top_logprobs, 0, MAX_TOP_LOGPROBS)


@dataclass(frozen=True)
class Hypothesis:
    """A beginning of an answer, or a whole one.

    Attributes:
        token_ids: generated ids, the end id included.
        logprobs: the model's log-probability of each, as float32.
        tops: the best ids at each place, as many as were asked for.
        total: their sum in float32, first to last.
        score: total ÷ length^α in float32; 0 for the empty beginning.
        end: the end id it finished with; None while it can go on, or where it met max_tokens.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    tops: tuple[tuple[TopLogprob, ...], ...] = ()
    total: float = 0.0
    score: float = 0.0
    end: int | None = None


@dataclass(frozen=True, kw_only=True)
class BeamCompletion(Completion):
    """A hypothesis as an answer; ``finish_reason`` is ``stop`` at an end id, ``length`` at max_tokens, or ``error``.

    ``params`` are those that a search and sampling have in common.

    Attributes:
        beam: how it was searched for.
        total: sum of log-probabilities, float32.
        score: what hypotheses are ordered by, float32.
    """

    beam: BeamParams
    total: float
    score: float


class BeamSearch:
    """One search: ``requests`` says what it must know next, ``advance`` takes it, until ``done``.

    Attributes:
        live: beams that can go on, best first.
        finished: the best hypotheses so far, at most ``width``, best first.
        error: why it failed, if it did.
        cached_prompt_tokens: prompt tokens that the first request found in the prefix cache.
        prefill_chunks: pieces in which the first request computed the rest of the prompt.
    """

    def __init__(
        self,
        engine: Engine,
        prompt_token_ids: Sequence[int],
        params: BeamParams,
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        """Checks the search against the engine, which is not kept.

        Args:
            decode: turns ids into text; the end id is not given to it.

        Raises:
            InputError: the prompt does not fit the model, or the width its vocabulary or number of end ids.
            ContextLengthError: prompt and max_tokens do not fit the context.
            CapacityError: one beam could never fit the KV memory.
        """
        self.params = params
        self._decode = decode
        self._prompt = tuple(prompt_token_ids)
        self._as_sampling = SamplingParams(max_tokens=params.max_tokens, n=params.n, temperature=0.0, logprobs=0)
        total = engine.check(Request(self._prompt, self._as_sampling))
        self._longest = total - len(self._prompt)
        self._end_ids = frozenset(engine.model.eos_token_ids)
        wanted = params.width + len(self._end_ids)
        most = min(MAX_TOP_LOGPROBS, engine.model.vocab_size)
        if wanted > most:
            raise InputError(
                f"{params.width} beams and {len(self._end_ids)} end ids are more than the {most} best ids known",
                field="width",
                remedy=f"Use at most {most - len(self._end_ids)} beams.",
            )
        reported = max(wanted, min(params.top_logprobs, engine.model.vocab_size))
        self._wanted = wanted
        self._one_token = SamplingParams(max_tokens=1, temperature=0.0, logprobs=reported, ignore_eos=True)
        self.live: list[Hypothesis] = [Hypothesis()]
        self.finished: list[Hypothesis] = []
        self.error: SamebitsError | None = None
        self.cached_prompt_tokens: int | None = None
        self.prefill_chunks = 0

    @property
    def done(self) -> bool:
        return not self.live

    def requests(self) -> list[Request]:
        """One for each live beam, in order; their ``top_logprobs`` are what is wanted, not their token."""
        return [Request((*self._prompt, *beam.token_ids), self._one_token) for beam in self.live]

    def advance(self, answers: Sequence[Completion]) -> None:
        """Takes the completions of ``requests``, in their order, and makes one step of section 4.3."""
        failed = [a.error for a in answers if a.error is not None]
        if failed:
            self.error, self.live = failed[0], []
            return
        if self.cached_prompt_tokens is None:
            self.cached_prompt_tokens = answers[0].cached_prompt_tokens
            self.prefill_chunks = answers[0].prefill_chunks
        candidates: list[Hypothesis] = []
        for beam, answer in zip(self.live, answers, strict=True):
            assert answer.top_logprobs is not None
            [top] = answer.top_logprobs
            candidates += [self._extended(beam, best, top) for best in top[: self._wanted]]
        candidates.sort(key=lambda c: -c.total)  # stable: ties keep the order of beams, then of ids within a beam
        width = self.params.width
        last = len(candidates[0].token_ids) == self._longest
        self.finished += [c for c in candidates[:width] if last or c.end is not None]
        self.finished.sort(key=lambda h: -h.score)  # stable: ties keep the order of finishing
        del self.finished[width:]
        self.live = [] if last else [c for c in candidates if c.end is None][:width]
        if len(self.finished) == width and self.live and self.live[0].score <= self.finished[-1].score:
            self.live = []

    def _extended(self, beam: Hypothesis, best: TopLogprob, top: tuple[TopLogprob, ...]) -> Hypothesis:
        added = np.float32(best.logprob)
        total = np.float32(beam.total) + added if beam.token_ids else added
        length = len(beam.token_ids) + 1
        return Hypothesis(
            token_ids=(*beam.token_ids, best.token_id),
            logprobs=(*beam.logprobs, best.logprob),
            tops=(*beam.tops, top[: self.params.top_logprobs]),
            total=float(total),
            score=float(total / length_divisor(length, self.params.length_penalty)),
            end=best.token_id if best.token_id in self._end_ids else None,
        )

    def completions(self) -> list[BeamCompletion]:
        """The n best hypotheses of a search that is done, best first; of one that failed, n errors."""
        assert self.done, "the search goes on"
        chosen = [Hypothesis()] * self.params.n if self.error else self.finished[: self.params.n]
        return [
            BeamCompletion(
                index=index,
                text=self._decode(h.token_ids if h.end is None else h.token_ids[:-1]),
                token_ids=h.token_ids,
                logprobs=np.array(h.logprobs, np.float32),
                top_logprobs=h.tops,
                finish_reason="error" if self.error else "length" if h.end is None else "stop",
                stop_reason=h.end,
                seed=None,
                cached_prompt_tokens=self.cached_prompt_tokens or 0,
                prefill_chunks=self.prefill_chunks,
                params=self._as_sampling,
                origins={},
                error=self.error,
                beam=self.params,
                total=h.total,
                score=h.score,
            )
            for index, h in enumerate(chosen)
        ]


class Searches:
    """Searches under way in an engine, among requests of others. Belongs to the thread that drives the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._beams: dict[int, tuple[BeamSearch, int]] = {}  # by request id: whose beam, and which
        self._answers: dict[BeamSearch, dict[int, Completion]] = {}

    def start(self, search: BeamSearch) -> None:
        """Queues what the search must know first.

        Raises:
            SamebitsError: the engine refuses it; nothing of the search is left.
        """
        self._answers[search] = {}
        try:
            self._submit(search)
        except BaseException:
            self.cancel(search)
            raise

    def owns(self, event: Event) -> bool:
        """Whether an event is a search's, and so for ``take``."""
        return event.request_id in self._beams

    def take(self, event: Event) -> BeamSearch | None:
        """Notes an event; goes on with the search when all its beams are known. Returns a search that is done."""
        if event.completion is None:
            return None
        search, place = self._beams.pop(event.request_id)
        answers = self._answers[search]
        answers[place] = event.completion
        if len(answers) < len(search.live):
            return None
        search.advance([answers[i] for i in range(len(answers))])
        answers.clear()
        if search.done:
            del self._answers[search]
            return search
        self._submit(search)
        return None

    def cancel(self, search: BeamSearch) -> None:
        """Ends a search and frees its pages; one that is not under way: nothing."""
        for request_id in [i for i, (owner, _) in self._beams.items() if owner is search]:
            del self._beams[request_id]
            self._engine.cancel(request_id)
        self._answers.pop(search, None)

    def _submit(self, search: BeamSearch) -> None:
        for place, request in enumerate(search.requests()):
            self._beams[self._engine.add(request)] = search, place


def run_searches(engine: Engine, searches: Sequence[BeamSearch]) -> None:
    """Drives an idle engine until all searches are done. Each goes on as soon as its own beams are known."""
    running = Searches(engine)
    try:
        for search in searches:
            running.start(search)
        while engine.busy:
            for event in engine.step():
                running.take(event)
    finally:
        for search in searches:
            running.cancel(search)


def length_divisor(length: int, alpha: float) -> np.float32:
    """length^alpha, correctly rounded to a binary64 and then to a float."""
    if alpha in (0, 1):
        return np.float32(length**alpha)
    with localcontext(Context(prec=_DIGITS)):
        return np.float32(float(Decimal(length) ** Decimal(alpha)))
