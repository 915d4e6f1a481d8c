"""The engine: many requests share each step, and none can tell.

The life of a request: ``add`` checks it and makes one sequence per choice → it waits → the scheduler admits it, with
pages of a known prefix → its prompt is computed in chunks → each step then computes one token → it ends, its pages go
back to the pool, its last event carries the completion. Under memory pressure the youngest is preempted: pages go back,
tokens stay, and it waits again in front.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from samebits import kernels
from samebits.engine.constraint import Constraint
from samebits.engine.pages import ROOT, PagePool, page_digest
from samebits.engine.params import SamplingParams, draw_seed
from samebits.engine.prompt_scores import PromptScores
from samebits.engine.request import Completion, Event, FinishReason, Request, Sequence, TextStream
from samebits.engine.sampler import Sampled, sample_rows
from samebits.engine.scheduler import Limits, Plan, View, plan_step
from samebits.engine.stops import StopMatcher
from samebits.errors import CapacityError, ConstraintError, ContextLengthError, InputError, SamebitsError, shown
from samebits.models.batch import Batch


class Forward(Protocol):
    """What the engine needs of a decoder."""

    def forward(self, batch: Batch, cache: kernels.KvCache) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True)
class ModelLimits:
    """What the engine needs to know of a model."""

    vocab_size: int
    context_length: int
    eos_token_ids: tuple[int, ...]


@dataclass
class Stats:
    """What has happened so far, so that a test can tell whether it exercised anything.

    Attributes:
        steps: forward passes.
        batch_sizes: sequences in a step → steps.
        rows: rows computed.
        prefills: prompt chunks computed per sequence → sequences (counted when its prompt is done).
        preemptions: sequences that lost their pages.
        prefix_hits: admissions that reused at least one page.
        prefix_tokens: tokens whose keys and values were reused.
    """

    steps: int = 0
    rows: int = 0
    preemptions: int = 0
    prefix_hits: int = 0
    prefix_tokens: int = 0
    batch_sizes: Counter[int] = field(default_factory=Counter)
    prefills: Counter[int] = field(default_factory=Counter)


class Engine:
    """Continuous batching over one decoder and one cache. Not thread-safe: one thread drives it.

    Attributes:
        model: what it knows of the model.
        pool: the pages.
        stats: what has happened so far.
    """

    def __init__(
        self,
        decoder: Forward,
        cache: kernels.KvCache,
        ctx: kernels.Context,
        model: ModelLimits,
        limits: Limits,
        new_stream: Callable[[], TextStream],
        *,
        prefix_cache: bool = True,
    ) -> None:
        self._decoder, self._cache, self._ctx = decoder, cache, ctx
        self.model, self._limits, self._new_stream = model, limits, new_stream
        self._prefix_cache = prefix_cache
        self.pool = PagePool(cache.pages, prefix_cache=prefix_cache)
        self.stats = Stats()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # oldest admission first
        self._by_key: dict[int, Sequence] = {}
        self._next_key = 0
        self._next_request = 0

    # ---- requests ----------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> int:
        """Queues a request; returns its id.

        Raises:
            InputError: empty prompt, ids outside the vocabulary, parameters or a constraint that do not fit the model.
            ContextLengthError: prompt and max_tokens do not fit the context.
            CapacityError: it could never fit the KV memory.
        """
        total = self.check(request)
        request_id = self._next_request
        self._next_request += 1
        params = request.params
        seed = params.seed
        if seed is None and params.temperature > 0:
            seed = draw_seed()
        scores = None
        if params.prompt_logprobs is not None:
            scores = PromptScores(request.prompt_token_ids, params.prompt_logprobs)
        sequences = []
        for index in range(params.n):
            sequences.append(
                Sequence(
                    key=self._next_key,
                    request_id=request_id,
                    index=index,
                    params=params,
                    seed=seed,
                    tokens=list(request.prompt_token_ids),
                    prompt_length=len(request.prompt_token_ids),
                    max_total=total,
                    stream=(request.new_stream or self._new_stream)(),
                    stops=StopMatcher(tuple(params.stop)),
                    origins=request.origins,
                    constraint=None if request.constraint is None else request.constraint.fork(),
                    scores=scores,
                )
            )
            self._next_key += 1
        self._by_key.update((s.key, s) for s in sequences)
        first = sequences[0]
        if self._prefix_cache or scores:  # the other choices start when the first has computed what they share
            first.followers = sequences[1:]
            self._waiting.append(first)
        else:
            self._waiting.extend(sequences)
        return request_id

    def check(self, request: Request) -> int:
        """The most tokens that prompt and output can come to. Reads only what never changes, so any thread may call it.

        Raises:
            as ``add`` does.
        """
        prompt, params, context = request.prompt_token_ids, request.params, self.model.context_length
        params.check_vocabulary(self.model.vocab_size)
        if request.constraint is not None:
            self._check_constraint(request.constraint, params)
        if not prompt:
            raise InputError("has no tokens", field="prompt", remedy="Give at least one token.")
        for token in prompt:
            if not 0 <= token < self.model.vocab_size:
                raise InputError(
                    f"token id {shown(token)} is outside the vocabulary",
                    field="prompt",
                    remedy=f"Ids go from 0 to {self.model.vocab_size - 1}.",
                )
        room = context - len(prompt)
        if room < 1:
            raise ContextLengthError(
                f"{len(prompt)} tokens leave no room in a context of {context}",
                field="prompt",
                remedy=f"Shorten it to at most {context - 1} tokens.",
            )
        if params.max_tokens is not None and params.max_tokens > room:
            raise ContextLengthError(
                f"{params.max_tokens} after a prompt of {len(prompt)} tokens exceeds the context of {context}",
                field="max_tokens",
                remedy=f"Ask for at most {room}, or shorten the prompt.",
            )
        total = len(prompt) + (room if params.max_tokens is None else params.max_tokens)
        if self._limits.pages_for(total) > self.pool.size:
            raise CapacityError(
                f"prompt and output of {total} tokens need {self._limits.pages_for(total)} KV pages of "
                f"{self._limits.page_size}, but there are {self.pool.size}; raise kv_memory or lower max_tokens"
            )
        return total

    def _check_constraint(self, constraint: Constraint, params: SamplingParams) -> None:
        if params.ignore_eos:
            raise InputError(
                "goes on where a constraint is to end", field="ignore_eos", remedy="Turn it off, or ask for plain text."
            )
        if constraint.vocab_size != self.model.vocab_size:
            raise InputError(
                f"decides about {constraint.vocab_size} ids, and the model has {self.model.vocab_size}",
                field="constraint",
                remedy="Compile it for this model.",
            )

    def cancel(self, request_id: int) -> list[Event]:
        """Ends all choices of a request that still wait or run; frees their pages. Unknown ids: no events."""
        mine = [s for s in self._by_key.values() if s.request_id == request_id]
        return [self._finish(s, "cancelled") for s in mine]

    @property
    def busy(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self._by_key)

    @property
    def running(self) -> int:
        """Choices that hold pages."""
        return len(self._running)

    @property
    def unfinished(self) -> int:
        """Choices that wait or run."""
        return len(self._by_key)

    # ---- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> list[Event]:
        """Computes one batch; returns what it added. Nothing to do: no events."""
        plan = self._plan()
        for key in plan.preempted:
            self._preempt(self._by_key[key])
        self._admit([self._by_key[key] for key in plan.admitted])
        if not plan.rows:
            return []
        rows = [(self._by_key[key], count) for key, count in plan.rows]
        self._take_pages(rows)
        scored = self._scored(rows)
        logits = self._decoder.forward(self._batch(rows, scored), self._cache)
        self.stats.steps += 1
        self.stats.batch_sizes[len(rows)] += 1
        self.stats.rows += sum(count for _, count in rows)
        ready = []
        for sequence, count in rows:
            self._computed(sequence, count)
            if sequence.computed == len(sequence.tokens):
                ready.append(sequence)
        at = len(ready)
        for scores, batch_rows in scored:
            scores.add(self._ctx, logits[at : at + len(batch_rows)])
            at += len(batch_rows)
        return [
            self._append(s, sampled)
            for s, sampled in zip(ready, sample_rows(self._ctx, logits[: len(ready)], ready), strict=True)
        ]

    def _plan(self) -> Plan:
        running = [View(s.key, s.computed, len(s.tokens), s.pages) for s in self._running]
        return plan_step(running, map(self._waiting_view, self._waiting), self.pool.available, self._limits)

    def _waiting_view(self, sequence: Sequence) -> View:
        found = self.pool.find(self._prefix_digests(sequence))
        shared = self.pool.count_held(found)
        return View(sequence.key, len(found) * self._limits.page_size, len(sequence.tokens), shared=shared)

    def _prefix_digests(self, sequence: Sequence) -> list[bytes]:
        """Digests of full pages that may be reused: the last token is always computed, for its logits, and so is every
        token whose row of logits has still to score the next.
        """
        if not self._prefix_cache:
            return []
        reusable, scores = len(sequence.tokens) - 1, sequence.scores
        if scores is not None and not scores.complete:
            reusable = min(reusable, len(scores.logprobs))
        return self._digests(sequence, reusable // self._limits.page_size)

    def _digests(self, sequence: Sequence, pages: int) -> list[bytes]:
        """Digests of the first full pages; each is computed once."""
        size, known = self._limits.page_size, sequence.digests
        for i in range(len(known), pages):
            known.append(page_digest(known[-1] if known else ROOT, sequence.tokens[i * size : (i + 1) * size]))
        return known[:pages]

    def _preempt(self, sequence: Sequence) -> None:
        self.stats.preemptions += 1
        self._running.remove(sequence)
        self._drop_pages(sequence)
        sequence.chunks = 0
        self._waiting.appendleft(sequence)

    def _admit(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:  # take hold of all known pages before any page is given up for a new one
            pages = self.pool.find(self._prefix_digests(sequence))
            self.pool.share(pages)
            sequence.pages = pages
            sequence.computed = len(pages) * self._limits.page_size
            self.stats.prefix_hits += bool(pages)
            self.stats.prefix_tokens += sequence.computed
            if sequence.cached_prompt_tokens is None:
                sequence.cached_prompt_tokens = sequence.computed
            self._waiting.remove(sequence)
            self._running.append(sequence)

    def _take_pages(self, rows: list[tuple[Sequence, int]]) -> None:
        for sequence, count in rows:
            needed = self._limits.pages_for(sequence.computed + count) - len(sequence.pages)
            sequence.pages += [self.pool.allocate() for _ in range(needed)]

    def _scored(self, rows: list[tuple[Sequence, int]]) -> list[tuple[PromptScores, range]]:
        """Prompts whose tokens this step can score, and the rows of the batch whose logits do."""
        found, start = [], 0
        for sequence, count in rows:
            if sequence.scores is not None:
                wanted = sequence.scores.wanted(sequence.computed, count)
                shift = start - sequence.computed
                if wanted:
                    found.append((sequence.scores, range(wanted.start + shift, wanted.stop + shift)))
            start += count
        return found

    def _batch(self, rows: list[tuple[Sequence, int]], scored: list[tuple[PromptScores, range]]) -> Batch:
        size = self._limits.page_size
        counts = np.fromiter((count for _, count in rows), np.int32, len(rows))
        starts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        tokens: list[int] = []
        tables = np.zeros((len(rows), max(len(s.pages) for s, _ in rows)), np.int32)
        for i, (sequence, count) in enumerate(rows):
            tokens += sequence.tokens[sequence.computed : sequence.computed + count]
            tables[i, : len(sequence.pages)] = sequence.pages
        first = np.fromiter((s.computed for s, _ in rows), np.int32, len(rows))
        owner = np.repeat(np.arange(len(rows)), counts)
        positions = (np.arange(starts[-1], dtype=np.int32) - starts[owner] + first[owner]).astype(np.int32)
        slots = tables[owner, positions // size].astype(np.int64) * size + positions % size
        totals = np.fromiter((len(s.tokens) for s, _ in rows), np.int32, len(rows))
        last = (starts[1:] - 1)[first + counts == totals]
        logit_rows = np.concatenate([last, *(np.asarray(batch_rows, np.int32) for _, batch_rows in scored)])
        return Batch(np.asarray(tokens, np.int32), positions, slots, starts, tables, logit_rows)

    def _computed(self, sequence: Sequence, count: int) -> None:
        size = self._limits.page_size
        before, sequence.computed = sequence.computed, sequence.computed + count
        if before < sequence.prompt_length:
            sequence.chunks += 1
            if sequence.computed >= sequence.prompt_length:
                self.stats.prefills[sequence.chunks] += 1
        if self._prefix_cache:
            digests = self._digests(sequence, sequence.computed // size)
            for i in range(before // size, len(digests)):
                self.pool.register(sequence.pages[i], digests[i])
        if sequence.followers and sequence.computed >= sequence.prompt_length:
            self._waiting.extendleft(reversed(sequence.followers))
            sequence.followers = []

    # ---- tokens ------------------------------------------------------------------------------------------------------

    def _append(self, sequence: Sequence, sampled: Sampled) -> Event:
        if sampled.token_id is None:
            return self._finish(sequence, "error", error=sampled.error)
        scores = sequence.scores if len(sequence.tokens) == sequence.prompt_length else None
        if scores is not None and scores.error is not None:
            return self._finish(sequence, "error", error=scores.error)
        if sampled.logprob is not None:
            sequence.logprobs.append(sampled.logprob)
            sequence.top_logprobs.append(sampled.top)
        event = self._advance(sequence, sampled.token_id)
        if sampled.logprob is None and scores is None:
            return event
        return replace(event, logprob=sampled.logprob, top_logprobs=sampled.top, prompt_scores=scores)

    def _advance(self, sequence: Sequence, token: int) -> Event:
        params = sequence.params
        sequence.tokens.append(token)
        ends = token in params.stop_token_ids or (token in self.model.eos_token_ids and not params.ignore_eos)
        try:
            if ends:
                return self._finish(sequence, "stop", token, token_id=token)
            complete = False
            if sequence.constraint is not None:
                sequence.constraint.accept(token)
                complete = sequence.constraint.finished
            text = sequence.stops.push(sequence.stream.push(token))
        except ConstraintError as error:
            return self._finish(sequence, "error", error=error, token_id=token)
        except Exception as fault:  # a fault in one request's text must not end the step for the others
            return self._finish(sequence, "error", error=_undecodable(fault), token_id=token)
        sequence.text.append(text)
        if sequence.stops.matched is not None:
            return self._finish(sequence, "stop", sequence.stops.matched, token_id=token, text=text)
        if complete:
            return self._finish(sequence, "stop", token_id=token, text=text)
        if len(sequence.tokens) >= sequence.max_total:
            return self._finish(sequence, "length", token_id=token, text=text)
        return Event(sequence.request_id, sequence.index, token, text)

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        stop_reason: str | int | None = None,
        *,
        error: SamebitsError | None = None,
        token_id: int | None = None,
        text: str = "",
    ) -> Event:
        early_stop = sequence.stops.matched
        if reason != "error" and early_stop is None:
            try:
                rest = sequence.stops.push(sequence.stream.finish()) + sequence.stops.finish()
            except Exception as fault:  # as in _append
                reason, stop_reason, error, rest = "error", None, _undecodable(fault), ""
            late_stop = sequence.stops.matched
            if late_stop is not None and reason != "cancelled":  # it ended the text before an end-of-text id did
                reason, stop_reason = "stop", late_stop
            sequence.text.append(rest)
            text += rest
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        self._drop_pages(sequence)
        self._waiting.extendleft(reversed(sequence.followers))
        sequence.followers = []
        del self._by_key[sequence.key]
        completion: Completion = sequence.completion(reason, stop_reason, error)
        return Event(sequence.request_id, sequence.index, token_id, text, completion)

    def _drop_pages(self, sequence: Sequence) -> None:
        self.pool.release(sequence.pages)
        sequence.pages = []
        sequence.computed = 0


def _undecodable(fault: Exception) -> SamebitsError:
    return SamebitsError(f"the output could not be decoded: {fault!r}")
