"""Random schedules against the solo answer: the long form is ``make proof``."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from samebits import LLM, SamplingParams
from samebits.engine import Request

KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 7},
    {"temperature": 0.8, "seed": -3, "top_p": 0.9, "top_k": 40, "n": 2},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "logit_bias": {5: 3.0}},
    {"temperature": 1.0, "seed": 5, "n": 2, "prompt_logprobs": 1},
)


def request(rng: random.Random) -> Request:
    """One of few different requests with shared beginnings, so that each comes again and prefixes are reused."""
    which = rng.randrange(12)
    make = random.Random(which)
    shared = [random.Random(which % 3).randrange(256) for _ in range(48)]
    prompt = shared[: make.choice((1, 17, 32, 48))] + [make.randrange(256) for _ in range(make.randint(0, 40))]
    values = {"max_tokens": make.randint(1, 12), "ignore_eos": True, "logprobs": 1} | KINDS[which % len(KINDS)]
    return Request(tuple(prompt), SamplingParams.from_mapping(values))


def answer(completion: Any) -> tuple[Any, ...]:
    scores = completion.prompt_scores
    scored = None if scores is None else (scores.array().tobytes(), scores.top_logprobs)
    return completion.token_ids, completion.logprobs.tobytes(), completion.text, completion.finish_reason, scored


def run_schedules(model: str, schedules: int, profile: str) -> dict[str, int]:
    """Runs random schedules; asserts each finished answer against the solo one; returns what was exercised."""
    with LLM(model, profile, max_batch=1, prefix_cache=False) as solo:
        known: dict[str, dict[int, tuple[Any, ...]]] = {}

        def expected(r: Request, index: int) -> tuple[Any, ...]:
            key = repr(r)
            if key not in known:
                known[key] = {c.index: answer(c) for c in solo.generate(list(r.prompt_token_ids), r.params)}
            return known[key][index]

        done = cancelled = preempted = hits = cut = 0
        page = solo._decoder.cache_bytes(16)
        for seed in range(schedules):
            if seed % 25 == 0:  # another engine now and then: limits change too
                shape = random.Random(-seed - 1)
                size = shape.choice((1, 2, 4, 16, 64))
                llm = LLM(
                    model, profile, threads=shape.choice((1, 2, 3)), max_batch=shape.choice((1, 2, 5, 16)),
                    chunk=shape.choice((1, 7, 16, 64, 512)), page_size=size,
                    kv_memory=shape.choice((10, 14, 64)) * page + size * page // 16,
                    prefix_cache=shape.random() < 0.8,
                )  # fmt: skip
            rng = random.Random(seed)
            live: dict[int, Request] = {}
            unfinished: Counter[int] = Counter()  # choices, by request
            to_add = rng.randint(2, 10)
            while to_add or live:
                while to_add and rng.random() < 0.6:
                    r = request(rng)
                    added = llm.engine.add(r)
                    live[added], unfinished[added] = r, r.params.n
                    to_add -= 1
                if live and rng.random() < 0.02:
                    victim = rng.choice(sorted(live))
                    llm.engine.cancel(victim)
                    del live[victim]
                    cancelled += 1
                for event in llm.engine.step():
                    if event.completion is None:
                        continue
                    r = live[event.request_id]
                    assert answer(event.completion) == expected(r, event.index), f"schedule {seed}: {r}"
                    done += 1
                    unfinished[event.request_id] -= 1
                    if unfinished[event.request_id] == 0:
                        del live[event.request_id]
            assert llm.engine.pool.held == 0, f"schedule {seed}: pages were not given back"
            llm.engine.pool.check()
            if seed % 25 == 24 or seed == schedules - 1:
                stats = llm.engine.stats
                preempted, hits = preempted + stats.preemptions, hits + stats.prefix_hits
                cut += sum(times for chunks, times in stats.prefills.items() if chunks > 1)
                llm.close()
    return {"done": done, "cancelled": cancelled, "preempted": preempted, "hits": hits, "cut": cut}


@pytest.mark.parametrize("profile", ["fp32", "bf16", "int8"])
def test_random_schedules(profile: str, small_model: str) -> None:
    exercised = run_schedules(small_model, 100, profile)
    assert all(exercised.values()), f"not exercised: {exercised}"


@pytest.mark.proof
def test_ten_thousand_random_schedules(small_model: str) -> None:
    exercised = {p: run_schedules(small_model, n, p) for p, n in (("bf16", 5000), ("fp32", 2500), ("int8", 2500))}
    print(exercised)
    assert all(all(counts.values()) for counts in exercised.values()), f"not exercised: {exercised}"


@pytest.mark.proof
def test_random_schedules_on_the_real_model(real_model: str) -> None:
    exercised = run_schedules(real_model, 50, "bf16")
    assert exercised["done"], f"not exercised: {exercised}"
