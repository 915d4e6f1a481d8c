"""No answer depends on what else runs, on chunks, pages, prefix reuse or preemption.

The answer alone, in one page and one chunk, is the expectation throughout. Each test asserts that what it is about
happened, and has a control: a planted fault that the same check must catch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import fakes
import numpy as np
import pytest
from fakes import EOS, FakeDecoder, Run, alone, ask, make_engine, some_requests

from samebits.engine import Engine, Request, SamplingParams, engine, sampler

REQUESTS = some_requests(64)
EXPECTED = [alone(r) for r in REQUESTS]


def test_the_requests_end_in_all_ways_and_have_ties() -> None:
    answers = [a for choices in EXPECTED for a in choices]
    assert {a.finish_reason for a in answers} == {"stop", "length"}
    assert {type(a.stop_reason) for a in answers} >= {type(None), str, int}
    assert any(a.stop_reason == EOS for a in answers)
    assert len({a.token_ids for a in answers}) > 50
    rows = [FakeDecoder().logits(one_slot(i), np.array([0])) for i in range(50)]
    assert any((row == row.max()).sum() > 1 for row in rows), "not exercised: no ties at the maximum"


def one_slot(token: int) -> fakes.FakeCache:
    cache = fakes.FakeCache(1, 1)
    cache.tokens[0] = cache.chain[0] = token
    return cache


# ---- batches and order -----------------------------------------------------------------------------------------------


def check_batches(kind: type[Engine], size: int, order: list[int], each: int = 0) -> None:
    decoder = FakeDecoder()
    made = make_engine(kind=kind, decoder=decoder, chunk=4096, pages=1024)
    chosen = [order[i] for i in range(size)]
    answers = ask(made, [REQUESTS[i] for i in chosen], each=each)
    if each == 0:
        assert max(decoder.batch_sizes) == size, "not exercised: the batch was never full"
    else:
        assert len(set(decoder.batch_sizes)) > 2, "not exercised: the batch did not change"
    assert made.stats.batch_sizes.total() == made.stats.steps == len(decoder.batch_sizes)
    assert made.stats.rows == sum(n for step in decoder.chunks for _, n in step)
    assert answers == [EXPECTED[i] for i in chosen]


@pytest.mark.parametrize("size", [2, 3, 5, 8, 16, 33, 64])
def test_alone_or_among_others(size: int) -> None:
    check_batches(Engine, size, list(range(64)))


@pytest.mark.parametrize("seed", range(6))
def test_any_order_and_time_of_arrival(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(64).tolist()
    check_batches(Engine, 16, order)
    check_batches(Engine, 24, order, each=1 + seed % 3)


class SwapsTables(Engine):
    """Gives two sequences each other's pages."""

    def _batch(self, rows: Any, scored: Any) -> Any:
        batch = super()._batch(rows, scored)
        batch.block_tables[:2] = batch.block_tables[:2][::-1].copy()
        return batch


def test_control_swapped_tables_are_seen() -> None:
    with pytest.raises(AssertionError):
        check_batches(SwapsTables, 16, list(range(64)))


def test_control_a_draw_that_depends_on_the_row_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_row(ctx: Any, logits: Any, sequences: Any) -> Any:
        return sampler.sample_rows(ctx, logits, [replace(s, index=i) for i, s in enumerate(sequences)])

    monkeypatch.setattr(engine, "sample_rows", by_row)
    assert [alone(r) for r in REQUESTS[:8]] == EXPECTED[:8]  # alone, the fault does not show
    with pytest.raises(AssertionError):
        check_batches(Engine, 8, list(range(64)))


# ---- chunks and pages ------------------------------------------------------------------------------------------------

SOME = [1, 2, 3, 4, 5, 8, 12, 17, 22, 27]


def check_chunks(kind: type[Engine], chunk: int) -> None:
    decoder = FakeDecoder()
    made = make_engine(kind=kind, decoder=decoder, chunk=chunk)
    answers = ask(made, [REQUESTS[i] for i in SOME])
    assert max(made.stats.prefills) > 1, "not exercised: no prompt was cut"
    assert max(sum(n for _, n in step) for step in decoder.chunks) == chunk
    assert answers == [EXPECTED[i] for i in SOME]


@pytest.mark.parametrize("chunk", range(1, 18))
def test_every_chunk_size(chunk: int) -> None:
    check_chunks(Engine, chunk)


class SkipsAToken(Engine):
    """Counts one token too many where a prompt is cut."""

    def _computed(self, sequence: Any, count: int) -> None:
        super()._computed(sequence, count + (sequence.computed + count < sequence.prompt_length - 1))


def test_control_a_chunk_off_by_one_is_seen() -> None:
    with pytest.raises(AssertionError, match="before it was written"):
        check_chunks(SkipsAToken, 5)


def check_pages(kind: type[Engine], page_size: int) -> None:
    made = make_engine(kind=kind, page_size=page_size, pages=1024 // page_size, chunk=11)
    most = 0
    run = Run(made)
    ids = [made.add(REQUESTS[i]) for i in SOME]
    while made.busy:
        run.step()
        most = max([most, *(len(s.pages) for s in made._running)])
    assert most > 1, "not exercised: nothing needed a second page"
    assert [[run.answers[i, 0]] for i in ids] == [EXPECTED[i] for i in SOME]
    assert made.pool.held == 0


@pytest.mark.parametrize("page_size", [1, 2, 16])
def test_page_sizes(page_size: int) -> None:
    check_pages(Engine, page_size)


class ReordersPages(Engine):
    """Puts a new page before the others."""

    def _take_pages(self, rows: Any) -> None:
        before = {s.key: len(s.pages) for s, _ in rows}
        super()._take_pages(rows)
        for s, _ in rows:
            if 0 < before[s.key] < len(s.pages):
                s.pages.insert(0, s.pages.pop())


@pytest.mark.parametrize("page_size", [1, 2, 16])
def test_control_pages_out_of_order_are_seen(page_size: int) -> None:
    with pytest.raises(AssertionError):
        check_pages(ReordersPages, page_size)


# ---- prefix cache ----------------------------------------------------------------------------------------------------


def check_prefixes(page_size: int, chunk: int = 512) -> None:
    made = make_engine(prefix_cache=True, page_size=page_size, pages=2048 // page_size, chunk=chunk)
    cold = ask(made, REQUESTS[:20], each=40)
    hits, reused = made.stats.prefix_hits, made.stats.prefix_tokens
    warm = ask(made, REQUESTS[:20], each=40)
    reusing = [r for r in REQUESTS[:20] if r.params.prompt_logprobs is None]
    longer = [r for r in reusing if len(r.prompt_token_ids) > page_size]
    assert len(longer) > 8
    assert made.stats.prefix_hits - hits == len(longer), "not exercised: a prefix was not found"
    assert made.stats.prefix_tokens - reused == sum(
        (len(r.prompt_token_ids) - 1) // page_size * page_size for r in longer
    )
    assert cold == EXPECTED[:20]
    assert warm == EXPECTED[:20]
    # The same content after another beginning is another page.
    a, b, same = [1] * page_size, [2] * page_size, list(range(3, 3 + page_size))
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    pair = [Request((*start, *same, 9), params) for start in (a, b)]
    assert ask(made, pair, each=10) == [alone(r) for r in pair]


@pytest.mark.parametrize("page_size", [1, 2, 16])
@pytest.mark.parametrize("chunk", [3, 512])
def test_prefix_cache_cold_and_warm(page_size: int, chunk: int) -> None:
    check_prefixes(page_size, chunk)


def test_cached_tokens_are_reported() -> None:
    made = make_engine(prefix_cache=True, page_size=4)
    request = Request(tuple(range(13)), SamplingParams(max_tokens=3, ignore_eos=True))
    for expected in (0, 12, 12):
        run = Run(made)
        made.add(request)
        run.to_end()
        assert [c.cached_prompt_tokens for c in run.completions.values()] == [expected]


def test_reuse_outlives_eviction() -> None:
    """A pool too small to keep everything: pages are given up, and what is still found is right."""
    made = make_engine(prefix_cache=True, page_size=2, pages=40)
    for _ in range(2):
        assert ask(made, REQUESTS[:30], each=7) == EXPECTED[:30]
    assert made.stats.prefix_hits > 0, "not exercised: nothing was reused"
    assert made._cache.taken > 80, "not exercised: no page was taken again"
    off = make_engine(prefix_cache=False, page_size=2, pages=40)
    ask(off, REQUESTS[:10])
    assert off.stats.prefix_hits == 0


@pytest.mark.parametrize(
    "digest",
    [
        lambda parent, tokens: hashlib.sha256(repr(tokens).encode()).digest(),
        lambda parent, tokens: hashlib.sha256(parent + repr(tokens[:-1]).encode()).digest(),
    ],
    ids=["forgets the page before", "forgets the last token"],
)
def test_control_a_wrong_digest_is_seen(digest: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "page_digest", digest)
    with pytest.raises(AssertionError):
        check_prefixes(2)


# ---- preemption ------------------------------------------------------------------------------------------------------


def check_preemption(kind: type[Engine], prefix_cache: bool, page_size: int, chunk: int) -> None:
    made = make_engine(
        kind=kind, prefix_cache=prefix_cache, page_size=page_size, pages=64 // page_size, chunk=chunk, max_batch=8
    )
    run = Run(made)
    ids = [made.add(r) for r in REQUESTS[:40]]
    with_output = 0
    while made.busy:
        run.step()
        with_output += any(s.output for s in made._waiting)
    assert made.stats.preemptions > 0, "not exercised: nothing was preempted"
    assert with_output > 0, "not exercised: nothing was preempted after its first token"
    assert [[run.answers[i, 0]] for i in ids] == EXPECTED[:40]
    assert made.pool.held == 0


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize(("page_size", "chunk"), [(1, 512), (2, 16), (4, 7), (16, 512)])
def test_preempted_or_not(prefix_cache: bool, page_size: int, chunk: int) -> None:
    check_preemption(Engine, prefix_cache, page_size, chunk)


class ForgetsOutput(Engine):
    """Loses the last token of a preempted sequence."""

    def _preempt(self, sequence: Any) -> None:
        super()._preempt(sequence)
        if sequence.output:
            sequence.tokens.pop()


class TakesOutputForPrompt(Engine):
    """Resumes as if the output so far had been asked."""

    def _preempt(self, sequence: Any) -> None:
        super()._preempt(sequence)
        sequence.prompt_length = len(sequence.tokens)


@pytest.mark.parametrize("kind", [ForgetsOutput, TakesOutputForPrompt])
def test_control_a_wrong_resumption_is_seen(kind: type[Engine]) -> None:
    with pytest.raises(AssertionError):
        check_preemption(kind, False, 2, 512)


def test_chunks_of_a_resumed_prompt_are_counted_anew() -> None:
    made = make_engine(page_size=2, pages=32, max_batch=8)  # every prompt fits one chunk
    ask(made, REQUESTS[:40])
    assert made.stats.preemptions > 0, "not exercised"
    assert set(made.stats.prefills) == {1}


# ---- choices ---------------------------------------------------------------------------------------------------------


def choices(n: int, seed: int | None, **values: Any) -> Request:
    return Request((4, 8, 15, 16, 23, 42), SamplingParams(temperature=1.0, seed=seed, n=n, max_tokens=12, **values))


def check_choices(seed: int, prefix_cache: bool) -> None:
    one, two, four = (
        ask(make_engine(prefix_cache=prefix_cache, page_size=2), [choices(n, seed, logprobs=2)])[0] for n in (1, 2, 4)
    )
    assert len({a.token_ids for a in four}) == 4, "choices are copies"
    assert one == four[:1]
    assert two == four[:2]
    neighbours = [choices(3, None), REQUESTS[2], choices(4, seed, logprobs=2), choices(2, None), choices(1, 9)]
    made = make_engine(prefix_cache=prefix_cache, page_size=2, chunk=5)
    assert ask(made, neighbours)[2] == four
    if prefix_cache:
        assert made.stats.prefix_hits >= 6, "not exercised: choices did not share their prompt"


@pytest.mark.parametrize("seed", [0, -1, 42, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_choice_depends_on_seed_and_index_alone(seed: int, prefix_cache: bool) -> None:
    check_choices(seed, prefix_cache)


class SharesARandomState(Engine):
    """Draws with a seed that moves with each request."""

    def add(self, request: Request) -> int:
        moved = replace(request.params, seed=(request.params.seed or 0) // 2 + self._next_key + request.params.n)
        return super().add(Request(request.prompt_token_ids, moved))


def test_control_a_shared_random_state_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = fakes.make_engine

    def faulty(**options: Any) -> Engine:
        return made(kind=SharesARandomState, **options)

    monkeypatch.setitem(globals(), "make_engine", faulty)
    with pytest.raises(AssertionError):
        check_choices(42, True)


def test_an_unseeded_request_records_a_seed_that_repeats_it() -> None:
    runs = [Run(make_engine()) for _ in range(2)]
    for run in runs:
        run.engine.add(choices(2, None))
        run.to_end()
    seeds = [{c.seed for c in run.completions.values()} for run in runs]
    assert all(len(s) == 1 for s in seeds)
    assert seeds[0] != seeds[1]
    for run, (seed,) in zip(runs, seeds, strict=True):
        assert ask(make_engine(), [choices(2, seed)])[0] == [run.answers[0, 0], run.answers[0, 1]]


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_the_seed_given_is_the_seed_recorded(seed: int) -> None:
    run = Run(make_engine())
    run.engine.add(choices(2, seed))
    run.to_end()
    assert {c.seed for c in run.completions.values()} == {seed}


# ---- the end of a text -----------------------------------------------------------------------------------------------


class Scripted:
    """Gives out a text at the first token."""

    def push(self, token_id: int) -> str:
        text, self.text = self.text, ""
        return text

    def finish(self) -> str:
        return ""

    text = "xabc"


@pytest.mark.parametrize("stops", [("bc",), ("bc", "abcd"), ("bcx", "bc", "abcd")])
@pytest.mark.parametrize("by_id", [True, False])
def test_a_stop_text_ended_the_output_also_where_it_was_held_back_until_the_last_token(
    stops: tuple[str, ...], by_id: bool
) -> None:
    """``abcd`` began earlier and might have come; then the output ends, by an id or by its length."""
    first = alone(Request((1,), SamplingParams(max_tokens=2, ignore_eos=True)))[0].token_ids
    ending: dict[str, Any] = {"stop_token_ids": first[1:]} if by_id else {"max_tokens": 2}
    params = SamplingParams(ignore_eos=True, stop=stops, **{"max_tokens": 9} | ending)
    [answer] = ask(make_engine(new_stream=Scripted), [Request((1,), params)])[0]
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("xa", "stop", "bc")
    assert len(answer.token_ids) == (1 if stops == ("bc",) else 2)


def test_control_without_a_stop_text_the_id_ended_it() -> None:
    first = alone(Request((1,), SamplingParams(max_tokens=2, ignore_eos=True)))[0].token_ids
    params = SamplingParams(max_tokens=9, ignore_eos=True, stop="abcd", stop_token_ids=first[1:])
    [answer] = ask(make_engine(new_stream=Scripted), [Request((1,), params)])[0]
    assert (answer.text, answer.stop_reason) == ("xabc", first[1])
