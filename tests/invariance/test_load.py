"""The bits of an answer against what a server does: batches, order, chunks, prefix reuse, preemption, pages.

Each test shows that what it is about really happened. The control of each is the vendor's matmul, or a planted fault,
which the same comparison must catch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samebits import LLM, kernels
from samebits.numerics import PROFILES, assert_bitwise_equal, first_difference

MATRIX = pytest.mark.parametrize("profile", PROFILES)


def require_same(expected: list[Any], actual: list[Any], name: str) -> None:
    for i, (a, b) in enumerate(zip(expected, actual, strict=True)):
        a.require_same(b, f"{name}, prompt {i}")


def differs(expected: list[Any], actual: list[Any]) -> bool:
    return any(
        a.token_ids != b.token_ids or first_difference(b.logprobs, a.logprobs) is not None
        for a, b in zip(expected, actual, strict=True)
    )


@MATRIX
def test_batches_of_two_to_64_and_any_order(
    profile: str, real_model: str, prompts: list[list[int]], ask: Any, alone: Any
) -> None:
    expected = alone(profile)
    with LLM(real_model, profile, max_batch=64, prefix_cache=False) as llm:
        for size in (2, 3, 7, 24):
            require_same(expected[:size], ask(llm, prompts[:size]), f"batch of {size}")
        order = np.random.default_rng(1).permutation(64)
        shuffled = ask(llm, [prompts[i] for i in order])
        for place, i in enumerate(order):
            if i < len(expected):
                expected[i].require_same(shuffled[place], f"place {place} of 64")
        assert max(llm.engine.stats.batch_sizes) == 64, "not exercised: the batch never had 64 sequences"


def test_control_the_vendors_matmul_depends_on_the_batch(real_model: str, prompts: list[list[int]], ask: Any) -> None:
    with LLM(real_model, "vendor", max_batch=8, prefix_cache=False) as llm:
        expected = [ask(llm, [p], max_tokens=2)[0] for p in prompts[1:5]]
        assert differs(expected, ask(llm, prompts[1:5], max_tokens=2)), "the comparison cannot see the fault"


@MATRIX
@pytest.mark.parametrize("chunk", [1, 3, 16, 17, 100, 256])
def test_every_chunk_size(
    profile: str, chunk: int, real_model: str, prompts: list[list[int]], ask: Any, alone: Any
) -> None:
    chosen = [3, 9, 11] if chunk > 1 else [3, 5]
    with LLM(real_model, profile, chunk=chunk, prefix_cache=False) as llm:
        answers = ask(llm, [prompts[i] for i in chosen])
        assert max(llm.engine.stats.prefills) >= 2, "not exercised: no prompt was cut"
    require_same([alone(profile)[i] for i in chosen], answers, f"chunk {chunk}")


def test_control_the_vendors_matmul_depends_on_the_chunk(real_model: str, prompts: list[list[int]], ask: Any) -> None:
    answers = []
    for chunk in (1, 512):
        with LLM(real_model, "vendor", chunk=chunk, prefix_cache=False) as llm:
            answers.append(ask(llm, [prompts[4]], max_tokens=2))
    assert differs(*answers), "the comparison cannot see the fault"


@MATRIX
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_prefix_cache_cold_and_warm(
    profile: str, page_size: int, real_model: str, prompts: list[list[int]], ask: Any, alone: Any
) -> None:
    expected = alone(profile)[11]
    with LLM(real_model, profile, page_size=page_size) as llm:
        cold, warm = ask(llm, [prompts[11]])[0], ask(llm, [prompts[11]])[0]
        stats = llm.engine.stats
        assert stats.prefix_hits == 1, "not exercised: the second request found nothing"
        assert stats.prefix_tokens == (len(prompts[11]) - 1) // page_size * page_size
        expected.require_same(cold, "cold")
        expected.require_same(warm, "warm")
        # Another tail after the same beginning.
        other = prompts[11][:128] + prompts[9][:90]
        branched = ask(llm, [other])[0]
        assert stats.prefix_hits == 2, "not exercised: the beginning was not reused"
    with LLM(real_model, profile, prefix_cache=False) as llm:
        ask(llm, [other])[0].require_same(branched, "another tail")


def test_control_a_wrong_page_of_the_prefix_cache_is_seen(
    real_model: str, prompts: list[list[int]], ask: Any, alone: Any
) -> None:
    with LLM(real_model, "bf16") as llm:
        ask(llm, [prompts[10]])
        find = llm.engine.pool.find
        llm.engine.pool.find = lambda digests: find(digests)[:1] * len(find(digests))  # type: ignore[method-assign]
        wrong = ask(llm, [prompts[10]])
    assert differs([alone("bf16")[10]], wrong), "the comparison cannot see the fault"


@MATRIX
def test_preempted_or_not(profile: str, real_model: str, prompts: list[list[int]], ask: Any, alone: Any) -> None:
    with LLM(real_model, profile, page_size=16, prefix_cache=False) as roomy:
        page = roomy._decoder.cache_bytes(16)
    chosen = [2, 3, 5, 6, 7, 8]  # their prompts fill 18 pages, and each grows into one more
    with LLM(real_model, profile, page_size=16, kv_memory=18 * page) as llm:
        answers = ask(llm, [prompts[i] for i in chosen])
        assert llm.engine.stats.preemptions > 0, "not exercised: nothing was preempted"
        assert llm.engine.pool.held == 0
        llm.engine.pool.check()
    require_same([alone(profile)[i] for i in chosen], answers, "preempted")


@MATRIX
@pytest.mark.parametrize("page_size", [1, 2, 32, 256])
def test_page_sizes(
    profile: str, page_size: int, real_model: str, prompts: list[list[int]], ask: Any, alone: Any
) -> None:
    chosen = [0, 4, 9, 11]
    with LLM(real_model, profile, page_size=page_size) as llm:
        answers = ask(llm, [prompts[i] for i in chosen])
    require_same([alone(profile)[i] for i in chosen], answers, f"pages of {page_size}")


@MATRIX
def test_prefill_and_decode(profile: str, real_model: str, prompts: list[list[int]], alone: Any) -> None:
    """One pass over prompt and output gives the log-probabilities that decoding gave token by token."""
    expected = alone(profile)[4]
    with LLM(real_model, profile) as llm:
        assert_bitwise_equal(one_pass(llm, prompts[4], expected.token_ids), expected.logprobs, "one pass")


def test_control_the_vendors_prefill_is_not_its_decode(real_model: str, prompts: list[list[int]], ask: Any) -> None:
    with LLM(real_model, "vendor") as llm:
        answer = ask(llm, [prompts[4]], max_tokens=3)[0]
        assert first_difference(one_pass(llm, prompts[4], answer.token_ids), answer.logprobs) is not None


def one_pass(llm: LLM, prompt: list[int], output: tuple[int, ...]) -> np.ndarray:
    logits = llm.logits([*prompt, *output])[len(prompt) - 1 : -1]
    scores = np.empty_like(logits)
    kernels.log_softmax(kernels.Context(1), np.ascontiguousarray(logits), scores)
    return np.ascontiguousarray(scores[np.arange(len(output)), list(output)])
