"""Cancelling, failing and refusing one request; the others must not notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes import CONTEXT, EOS, VOCAB, Answer, FakeDecoder, FakeStream, Run, alone, ask, make_engine, some_requests

from samebits.engine import Engine, Request, SamplingParams, sampler
from samebits.engine.pages import PagePool
from samebits.errors import CapacityError, ContextLengthError, InputError, NumericsError, shown

REQUESTS = some_requests(16, seed=5)
EXPECTED = [alone(r) for r in REQUESTS]
FAILING = EOS - 1  # the first token of the request that is to fail
BAD = Request((FAILING, 2, 3), SamplingParams(max_tokens=9, ignore_eos=True, temperature=1.0, seed=1))

# ---- cancelling ------------------------------------------------------------------------------------------------------


def check_cancel(seed: int, pool: type[PagePool] = PagePool, **options: Any) -> set[str]:
    """Cancels half of the requests at random steps; returns in which states that found them."""
    rng = np.random.default_rng(seed)
    made = make_engine(page_size=2, pages=64, chunk=9, max_batch=6, pool=pool, **options)
    run = Run(made)
    requests = [*REQUESTS[:12], *(Request(r.prompt_token_ids, choices_of(r)) for r in REQUESTS[12:])]
    ids = [made.add(r) for r in requests]
    due = {i: int(rng.integers(0, 30)) for i in ids[::2]}
    states, now = set(), 0
    while made.busy:
        for i in [i for i, step in due.items() if step == now]:
            mine = [s for s in made._by_key.values() if s.request_id == i]
            states |= {state(made, s) for s in mine}
            before = {key for key in run.answers if key[0] == i}
            events = made.cancel(i)
            run.take(events)
            assert len(events) == len(mine)
            assert all(e.completion is not None and e.completion.finish_reason == "cancelled" for e in events)
            assert {key for key in run.answers if key[0] == i} - before == {(i, s.index) for s in mine}
            assert not any(s.pages for s in mine), "a cancelled sequence keeps pages"
            assert made.cancel(i) == []
            made.pool.check()
        run.step()
        now += 1
    assert made.pool.held == 0, "pages were not given back"
    made.pool.check()
    for i, r in zip(ids, requests, strict=True):
        if i not in due and r in REQUESTS:
            assert run.answers[i, 0] == EXPECTED[REQUESTS.index(r)][0], "a neighbour changed"
    return states


def choices_of(request: Request) -> SamplingParams:
    return SamplingParams(n=3, temperature=1.0, seed=4, max_tokens=request.params.max_tokens)


def state(made: Engine, sequence: Any) -> str:
    if sequence in made._waiting:
        return "waiting"
    if sequence not in made._running:
        return "following"
    return "decoding" if sequence.output else "prompt"


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_cancelling_frees_pages_at_any_step(prefix_cache: bool) -> None:
    states: set[str] = set()
    for seed in range(20):
        states |= check_cancel(seed, prefix_cache=prefix_cache)
    wanted = {"waiting", "prompt", "decoding"} | ({"following"} if prefix_cache else set())
    assert states == wanted, "not exercised"


class LeakyPool(PagePool):
    """Forgets to free the last page of a sequence."""

    def release(self, pages: Any) -> None:
        super().release(pages[:-1])


class GenerousPool(PagePool):
    """Frees a page that another sequence still reads."""

    def release(self, pages: Any) -> None:
        for page in pages:
            if self._references[page] > 1:
                self._references[page] = 1
        super().release(pages)


@pytest.mark.parametrize("pool", [LeakyPool, GenerousPool])
def test_control_a_faulty_pool_is_seen(pool: type[PagePool]) -> None:
    def some_seeds() -> None:
        for seed in range(20):
            check_cancel(seed, pool, prefix_cache=True)

    with pytest.raises((AssertionError, KeyError)):
        some_seeds()


def test_a_cancelled_choice_shows_what_it_had() -> None:
    run = Run(make_engine())
    request = run.engine.add(Request((1, 2), SamplingParams(max_tokens=50, ignore_eos=True, stop="zz")))
    for _ in range(5):
        run.step()
    run.take(run.engine.cancel(request))
    whole = alone(Request((1, 2), SamplingParams(max_tokens=5, ignore_eos=True, stop="zz")))[0]
    assert run.answers[request, 0].token_ids == whole.token_ids
    assert run.answers[request, 0].text == whole.text
    assert run.engine.cancel(request) == run.engine.cancel(12345) == []
    assert not run.engine.busy
    assert run.engine.step() == []


# ---- failing ---------------------------------------------------------------------------------------------------------


def overflows(tokens: list[int]) -> bool:
    return tokens[0] == FAILING and len(tokens) >= 6


def check_failure(bad: Request, tokens: int | None, **options: Any) -> Answer:
    made = make_engine(**options)
    middle = len(REQUESTS) // 2
    answers = ask(made, [*REQUESTS[:middle], bad, *REQUESTS[middle:]])
    assert max(made.stats.batch_sizes) > 8, "not exercised: the failing one had no neighbours"
    failed = answers.pop(middle)
    assert answers == EXPECTED, "a neighbour changed"
    assert [a.finish_reason for a in failed] == ["error"] * bad.params.n
    if tokens is not None:
        assert len(failed[0].token_ids) == tokens
    return failed[0]


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("values", [{}, {"temperature": 0.0}, {"logprobs": 2}, {"logit_bias": {3: -100}}, {"n": 3}])
def test_logits_that_are_not_finite_fail_their_request_alone(values: dict[str, Any], prefix_cache: bool) -> None:
    bad = Request(BAD.prompt_token_ids, SamplingParams(max_tokens=9, ignore_eos=True, **values))
    failed = check_failure(bad, 3, decoder=FakeDecoder(overflows), prefix_cache=prefix_cache)
    assert failed.error is not None
    assert failed.error.startswith("NumericsError: logits after 6 tokens are not all finite")


def test_control_a_failure_that_spreads_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_or_none(logits: Any) -> Any:
        return np.full(len(logits), bool(np.isfinite(logits).all()))

    monkeypatch.setattr(sampler, "_finite_rows", all_or_none)
    with pytest.raises(AssertionError, match="a neighbour changed"):
        check_failure(BAD, 3, decoder=FakeDecoder(overflows))


@pytest.mark.parametrize("logit", [3e38, -3e38])
def test_finite_logits_whose_sum_overflows_are_no_failure(logit: float) -> None:
    assert sampler._finite_rows(np.full((2, VOCAB), logit, np.float32)).all()
    row = np.zeros((3, VOCAB), np.float32)
    row[0, 5], row[1, 5], row[2, 5] = np.inf, -np.inf, np.nan
    assert not sampler._finite_rows(row).any()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_penalty_that_overflows_fails_its_request_alone(temperature: float) -> None:
    """A penalty of 1e-50 is 0 as a float32, and a logit divided by it infinite."""
    values = SamplingParams(repetition_penalty=1e-50, temperature=temperature, max_tokens=9)
    failed = check_failure(Request(tuple(range(VOCAB)), values), 0)
    assert failed.error is not None
    assert failed.error.startswith(NumericsError.__name__)


class FaultyStream(FakeStream):
    """Raises at a chosen call."""

    def __init__(self, pushes: int) -> None:
        super().__init__()
        self.pushes = pushes

    def push(self, token_id: int) -> str:
        self.pushes -= 1
        if self.pushes == 0:
            raise UnicodeError("planted")
        return super().push(token_id)

    def finish(self) -> str:
        if self.pushes < 0:
            raise UnicodeError("planted")
        return super().finish()


def one_faulty_stream(which: int, pushes: int) -> Callable[[], FakeStream]:
    made = iter(range(10_000))
    return lambda: FaultyStream(pushes) if next(made) == which else FakeStream()


@pytest.mark.parametrize(("pushes", "tokens"), [(1, 1), (4, 4), (0, 9)])
def test_text_that_cannot_be_decoded_fails_its_request_alone(pushes: int, tokens: int) -> None:
    """At the first token, at a later one, and when the output ends (0: only ``finish`` raises)."""
    failed = check_failure(BAD, tokens, new_stream=one_faulty_stream(len(REQUESTS) // 2, pushes))
    assert failed.error == "SamebitsError: the output could not be decoded: UnicodeError('planted')"


@pytest.mark.parametrize("stop", [True, False])
def test_cancelling_or_stopping_with_a_faulty_text_gives_pages_back(stop: bool) -> None:
    made = make_engine(new_stream=lambda: FaultyStream(0))
    run = Run(made)
    first = alone(Request((1,), SamplingParams(max_tokens=2, ignore_eos=True)))[0].token_ids
    params = SamplingParams(max_tokens=30, ignore_eos=True, stop_token_ids=first[1:] if stop else ())
    request = made.add(Request((1,), params))
    run.step()
    run.take([] if stop else made.cancel(request))
    run.to_end()
    assert run.answers[request, 0].finish_reason == "error"


# ---- refusing --------------------------------------------------------------------------------------------------------


def refuse(request: Request, kind: type[Exception], *parts: str, **options: Any) -> None:
    """The request is refused with these words, and one in flight does not notice."""
    run = Run(make_engine(**options))
    good = run.engine.add(REQUESTS[0])
    run.step()
    with pytest.raises(kind) as caught:
        run.engine.add(request)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    run.to_end()
    assert [run.answers[good, 0]] == EXPECTED[0]


def request(prompt: tuple[int, ...], **values: Any) -> Request:
    return Request(prompt, SamplingParams(**values))


def test_an_empty_prompt_is_refused() -> None:
    refuse(request(()), InputError, "prompt: has no tokens")


@pytest.mark.parametrize("token", [-1, VOCAB, 2**31, 10**30, 10**5000], ids=shown)
def test_an_id_outside_the_vocabulary_is_refused(token: int) -> None:
    refuse(request((1, token)), InputError, f"prompt: token id {shown(token)} is outside", f"0 to {VOCAB - 1}")


@pytest.mark.parametrize("values", [{"logit_bias": {VOCAB: 1.0}}, {"stop_token_ids": [3, VOCAB]}])
def test_parameters_outside_the_vocabulary_are_refused(values: dict[str, Any]) -> None:
    refuse(request((1,), **values), InputError, f"{next(iter(values))}: token id {VOCAB}", f"0 to {VOCAB - 1}")


def test_a_context_too_short_is_refused_with_counts() -> None:
    long = tuple([1] * CONTEXT)
    refuse(request(long), ContextLengthError, "prompt: 128 tokens", "context of 128", "at most 127")
    refuse(
        request(long[:100], max_tokens=29),
        ContextLengthError,
        "max_tokens: 29",
        "prompt of 100",
        "of 128",
        "at most 28",
    )


def test_the_whole_context_can_be_used() -> None:
    for values, new in (({"max_tokens": 28}, 28), ({"max_tokens": None}, 28)):
        (got,) = alone(request(tuple([1] * 100), ignore_eos=True, **values))
        assert (len(got.token_ids), got.finish_reason) == (new, "length")
    (got,) = alone(request(tuple([1] * 127), max_tokens=None, ignore_eos=True))
    assert len(got.token_ids) == 1


def test_more_than_the_memory_is_refused_with_counts() -> None:
    refuse(request((1,) * 40, max_tokens=41), CapacityError, "81 tokens", "21 KV pages of 4", "there are 20", pages=20)
    fits = request((1,) * 40, max_tokens=40, ignore_eos=True)
    assert ask(make_engine(pages=20), [fits])[0] == alone(fits)
