"""Log-probabilities of a prompt's tokens: the bits that generation gives, whatever else runs."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import EOS, FakeDecoder, Run, alone, ask, make_engine

from samebits.engine import Completion, Request, SamplingParams

SCORED = SamplingParams(max_tokens=1, prompt_logprobs=3)
LONG = Request(tuple(int(t) for t in np.random.default_rng(5).integers(0, EOS, 60)), SCORED)


def run(engine: object, *requests: Request) -> list[Completion]:
    made = Run(engine)  # type: ignore[arg-type]
    ids = [made.engine.add(request) for request in requests]
    made.to_end()
    return [made.completions[i, c] for i, r in zip(ids, requests, strict=True) for c in range(r.params.n)]


def test_what_was_generated_has_the_same_bits_when_it_is_read() -> None:
    params = SamplingParams(max_tokens=20, ignore_eos=True, logprobs=3, temperature=1.0, seed=1)
    [written] = run(make_engine(), Request((1, 2, 3), params))
    [read] = run(make_engine(chunk=7), Request((1, 2, 3, *written.token_ids), SCORED))
    assert written.logprobs is not None
    assert read.prompt_scores is not None
    assert read.prompt_scores.array()[2:].tobytes() == written.logprobs.tobytes()
    assert tuple(read.prompt_scores.top_logprobs[2:]) == written.top_logprobs
    other = Request((2, 1, 3, *written.token_ids), SCORED)  # negative control: they depend on what comes before
    assert alone(other)[0].prompt_scores[0][8:] != read.prompt_scores.array()[2:].tobytes()


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("chunk", [1, 5, 512])
def test_a_known_prefix_is_computed_again(prefix_cache: bool, chunk: int) -> None:
    engine = make_engine(prefix_cache=prefix_cache, chunk=chunk)
    plain = Request(LONG.prompt_token_ids, SamplingParams(max_tokens=1))
    run(engine, plain)
    [scored] = run(engine, LONG)
    assert scored.cached_prompt_tokens == 0
    assert ask(make_engine(), [LONG])[0][0].prompt_scores == alone(LONG)[0].prompt_scores
    assert scored.prompt_scores is not None
    assert scored.prompt_scores.array().tobytes() == alone(LONG)[0].prompt_scores[0]
    [after] = run(engine, plain)  # what it left in the cache is good
    assert after.token_ids == alone(plain)[0].token_ids
    assert (after.cached_prompt_tokens > 0) == prefix_cache


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_choices_share_the_scores(prefix_cache: bool) -> None:
    params = SamplingParams(max_tokens=5, n=3, temperature=1.0, seed=4, prompt_logprobs=0)
    request = Request(LONG.prompt_token_ids, params)
    engine = make_engine(prefix_cache=prefix_cache, chunk=8)
    first, *others = run(engine, request)
    assert first.prompt_scores is not None
    assert all(c.prompt_scores is first.prompt_scores for c in others)
    assert first.prompt_scores.top_logprobs == [()] * 59
    assert engine.stats.rows >= 3 * 5, "not exercised"


def test_preemption_in_the_middle_of_a_prompt() -> None:
    others = [Request((7, i), SamplingParams(max_tokens=50, ignore_eos=True)) for i in range(4)]
    engine = make_engine(pages=40, chunk=6, prefix_cache=True)
    run_ = Run(engine)
    for other in others:
        engine.add(other)
    scored = Request(LONG.prompt_token_ids, SamplingParams(max_tokens=30, ignore_eos=True, prompt_logprobs=3))
    ids = [engine.add(scored) for _ in range(2)]
    run_.to_end()
    assert engine.stats.preemptions > 0, "not exercised"
    assert all(run_.answers[i, 0] == alone(scored)[0] for i in ids)


def test_the_first_event_carries_them() -> None:
    engine = make_engine(chunk=9)
    engine.add(Request(LONG.prompt_token_ids, SamplingParams(max_tokens=3, n=2, ignore_eos=True, prompt_logprobs=1)))
    seen: dict[int, list[bool]] = {}
    while engine.busy:
        for event in engine.step():
            seen.setdefault(event.index, []).append(event.prompt_scores is not None)
    assert set(map(tuple, seen.values())) == {(True, False, False)}


def test_a_prompt_of_one_token_has_none() -> None:
    [one] = run(make_engine(), Request((9,), SCORED))
    assert one.prompt_scores is not None
    assert one.prompt_scores.array().shape == (0,)


def test_logits_that_are_not_finite_end_the_request_alone() -> None:
    overflow = FakeDecoder(overflows=lambda tokens: tokens[:1] == [3] and len(tokens) == 4)
    engine = make_engine(decoder=overflow, chunk=5)
    bad = Request((3, *LONG.prompt_token_ids), SCORED)
    good = Request((4, *LONG.prompt_token_ids), SCORED)
    failed, fine = run(engine, bad, good)
    assert failed.finish_reason == "error"
    assert "within the first" in str(failed.error)
    assert fine.prompt_scores is not None


def test_plain_requests_ask_for_no_more_logits() -> None:
    rows = []

    class Counts(FakeDecoder):
        def forward(self, batch: object, cache: object) -> np.ndarray:
            logits = super().forward(batch, cache)  # type: ignore[arg-type]
            rows.append(len(logits))
            return logits

    run(make_engine(decoder=Counts()), Request(LONG.prompt_token_ids, SamplingParams(max_tokens=1)))
    run(make_engine(decoder=Counts()), LONG)
    assert rows == [1, 60]
