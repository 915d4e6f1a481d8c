"""A decoder without arithmetic, over a real paged store: its logits are a hash of what it reads back.

Each slot holds a number that depends on the token, its position and the slot before it, as keys and values of a deep
layer do. A page of another sequence, a page in the wrong place, a slot not yet written or written twice: each changes
the answer or fails an assertion.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import kernels
from samebits.engine import Completion, Engine, Event, Limits, ModelLimits, Request, SamplingParams
from samebits.engine.pages import PagePool
from samebits.models.batch import Batch

VOCAB = 61
EOS = 60
CONTEXT = 128
UNWRITTEN = -1
MASK = 2**62 - 1


class FakeCache:
    """Pages of slots: the token and the chained number of each; ``taken`` counts pages that the pool gave out."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.pages, self.page_size, self.taken = pages, page_size, 0
        self.tokens = np.full(pages * page_size, UNWRITTEN, np.int64)
        self.chain = np.full(pages * page_size, UNWRITTEN, np.int64)

    def watch(self, pool: PagePool) -> None:
        """Forgets what a page holds when the pool gives it out, so that a read of a former owner's slot is seen."""
        allocate = pool.allocate

        def forget_and_allocate() -> int:
            page = allocate()
            self.taken += 1
            self.tokens.reshape(self.pages, -1)[page] = UNWRITTEN
            self.chain.reshape(self.pages, -1)[page] = UNWRITTEN
            return page

        pool.allocate = forget_and_allocate  # type: ignore[method-assign]


@dataclass
class FakeDecoder:
    """Computes a batch as a model does, checks it, and records its shape.

    Attributes:
        overflows: whether a sequence with these tokens has logits that are not finite.
        batch_sizes: sequences of each step.
        chunks: (first position, rows) of each sequence of each step.
    """

    overflows: Callable[[list[int]], bool] = lambda tokens: False
    batch_sizes: list[int] = field(default_factory=list)
    chunks: list[list[tuple[int, int]]] = field(default_factory=list)

    def forward(self, batch: Batch, cache: Any) -> NDArray[np.float32]:
        check_batch(batch, cache)
        starts, size = batch.seq_starts.tolist(), cache.page_size
        self.batch_sizes.append(len(starts) - 1)
        self.chunks.append([(int(batch.positions[a]), b - a) for a, b in itertools.pairwise(starts)])
        rows: dict[int, NDArray[np.float32]] = {}
        wanted = set(batch.logit_rows.tolist())
        for i in range(len(starts) - 1):
            last = int(batch.positions[starts[i + 1] - 1])
            at = np.arange(last + 1)
            slots = batch.block_tables[i][at // size].astype(np.int64) * size + at % size
            for t in range(starts[i], starts[i + 1]):
                position = int(batch.positions[t])
                before = int(cache.chain[slots[position - 1]]) if position else 0
                slot = int(batch.slots[t])
                assert cache.tokens[slot] == UNWRITTEN, f"slot {slot} was written twice"
                cache.tokens[slot] = batch.token_ids[t]
                cache.chain[slot] = hash((before, int(batch.token_ids[t]), position)) & MASK
                if t in wanted:
                    rows[t] = self.logits(cache, slots[: position + 1])
        if not len(batch.logit_rows):
            return np.empty((0, VOCAB), np.float32)
        return np.stack([rows[t] for t in batch.logit_rows.tolist()])

    def logits(self, cache: FakeCache, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        tokens = cache.tokens[slots]
        assert (tokens != UNWRITTEN).all(), "a slot was read before it was written"
        data = hashlib.shake_256(tokens.tobytes() + cache.chain[slots].tobytes()).digest(VOCAB)
        row = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 32  # few values: ties are common
        if self.overflows(tokens.tolist()):
            row[3] = np.nan
        return row


def check_batch(batch: Batch, cache: FakeCache) -> None:
    """Asserts what docstrings of Batch promise."""
    starts = batch.seq_starts
    assert starts[0] == 0
    assert starts[-1] == len(batch.token_ids) == len(batch.positions) == len(batch.slots)
    assert (np.diff(starts) > 0).all()
    assert batch.block_tables.shape[0] == len(starts) - 1
    assert batch.token_ids.dtype == batch.positions.dtype == starts.dtype == np.int32
    assert batch.slots.dtype == np.int64
    assert batch.block_tables.dtype == batch.logit_rows.dtype == np.int32
    assert len(set(batch.slots.tolist())) == len(batch.slots), "two rows share a slot"
    for i in range(len(starts) - 1):
        positions = batch.positions[starts[i] : starts[i + 1]]
        assert (np.diff(positions) == 1).all(), "positions are not consecutive"
        pages = batch.block_tables[i][positions // cache.page_size]
        expected = pages.astype(np.int64) * cache.page_size + positions % cache.page_size
        assert (batch.slots[starts[i] : starts[i + 1]] == expected).all(), "slots and block table disagree"
    assert len(set(batch.logit_rows.tolist())) == len(batch.logit_rows), "a row's logits are asked for twice"
    assert ((batch.logit_rows >= 0) & (batch.logit_rows < starts[-1])).all()


class FakeStream:
    """Letters for tokens; as with a character of many bytes, every seventh id shows only with the next one."""

    def __init__(self) -> None:
        self.held = ""

    def push(self, token_id: int) -> str:
        text = self.held + chr(ord("a") + token_id % 26)
        self.held = ""
        if token_id % 7 == 0:
            text, self.held = "", text
        return text

    def finish(self) -> str:
        rest, self.held = self.held, ""
        return rest


CTX = kernels.Context(threads=1, isa="scalar")


def make_engine(
    *,
    kind: type[Engine] = Engine,
    pages: int = 256,
    page_size: int = 4,
    chunk: int = 512,
    max_batch: int = 64,
    prefix_cache: bool = False,
    decoder: FakeDecoder | None = None,
    pool: type[PagePool] = PagePool,
    new_stream: Callable[[], Any] = FakeStream,
) -> Engine:
    """An engine over the fake decoder."""
    cache: Any = FakeCache(pages, page_size)
    made = kind(
        decoder or FakeDecoder(),
        cache,
        CTX,
        ModelLimits(VOCAB, CONTEXT, (EOS,)),
        Limits(max_batch, chunk, page_size),
        new_stream,
        prefix_cache=prefix_cache,
    )
    made.pool = pool(pages, prefix_cache=prefix_cache)
    cache.watch(made.pool)
    return made


@dataclass(frozen=True)
class Answer:
    """All that a caller can see of a choice, but for counts of reused tokens."""

    token_ids: tuple[int, ...]
    text: str
    logprobs: bytes | None
    top_logprobs: Any
    finish_reason: str
    stop_reason: str | int | None
    error: str | None
    prompt_scores: Any


def answer(c: Completion) -> Answer:
    bits = None if c.logprobs is None else c.logprobs.tobytes()
    error = None if c.error is None else f"{type(c.error).__name__}: {c.error}"
    scores = None if c.prompt_scores is None else (c.prompt_scores.array().tobytes(), c.prompt_scores.top_logprobs)
    return Answer(c.token_ids, c.text, bits, c.top_logprobs, c.finish_reason, c.stop_reason, error, scores)


class Run:
    """Steps an engine and collects what comes out; asserts that streams and completions agree."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: dict[tuple[int, int], Answer] = {}
        self.completions: dict[tuple[int, int], Completion] = {}
        self.tokens: dict[tuple[int, int], list[int]] = {}
        self.texts: dict[tuple[int, int], str] = {}

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            key = event.request_id, event.index
            assert key not in self.answers, "an event after the last"
            self.tokens.setdefault(key, [])
            if event.token_id is not None:
                self.tokens[key].append(event.token_id)
            self.texts[key] = self.texts.get(key, "") + event.text
            if event.completion is not None:
                self.completions[key] = event.completion
                self.answers[key] = answer(event.completion)
                assert self.answers[key].text == self.texts[key], "streamed text is not the text"
                assert list(event.completion.token_ids) == self.tokens[key], "streamed tokens are not the tokens"

    def step(self) -> None:
        self.take(self.engine.step())
        self.engine.pool.check()

    def to_end(self, steps: int = 20_000) -> None:
        while self.engine.busy:
            self.step()
            steps -= 1
            assert steps, "the engine does not end"
        assert self.engine.pool.held == 0, "pages were not given back"


def ask(engine: Engine, requests: Sequence[Request], *, each: int = 0) -> list[list[Answer]]:
    """The choices of each request; `each` steps are run between one request and the next."""
    run = Run(engine)
    ids = []
    for request in requests:
        ids.append(engine.add(request))
        for _ in range(each):
            run.step()
    run.to_end()
    return [[run.answers[i, c] for c in range(r.params.n)] for i, r in zip(ids, requests, strict=True)]


def alone(request: Request, **options: Any) -> list[Answer]:
    """The choices of a request that has an engine for itself: one sequence, whole prompts, one page."""
    return ask(make_engine(page_size=CONTEXT, pages=1, max_batch=1, **options), [request])[0]


KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 0},
    {"temperature": 0.7, "seed": -1, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "logprobs": 3},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": -0.25, "logprobs": 0},
    {"temperature": 1.5, "seed": 2**63 - 1, "logit_bias": {5: 2.0, 7: -100.0}, "frequency_penalty": 1.0},
    {"temperature": 1.0, "seed": 3, "stop": ("e", "ab", "abc"), "stop_token_ids": (11,)},
    {"prompt_logprobs": 2, "logprobs": 1},
)


def some_requests(count: int, seed: int = 0, max_tokens: int = 14, longest: int = 40) -> list[Request]:
    """Different requests; some share the beginning of their prompt, and many end early."""
    rng = np.random.default_rng(seed)
    beginnings = [rng.integers(0, VOCAB - 1, longest).tolist() for _ in range(3)]
    requests = []
    for i in range(count):
        shared = int(rng.integers(0, longest // 2))
        own = rng.integers(0, VOCAB - 1, int(rng.integers(1, longest - shared))).tolist()
        values = KINDS[i % len(KINDS)] | {"max_tokens": int(rng.integers(1, max_tokens + 1)), "ignore_eos": i % 4 == 0}
        requests.append(Request((*beginnings[i % 3][:shared], *own), SamplingParams(**values)))
    return requests
