"""Sampling: every path draws what the reference draws."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samebits.kernels import reference
from samebits.kernels.reference.sample import weights

# temperature, top_k, top_p, min_p
SETTINGS = [
    (1.0, 0, 1.0, 0.0),
    (0.7, 40, 1.0, 0.0),
    (1.3, 0, 0.9, 0.0),
    (1.0, 0, 1.0, 0.1),
    (0.8, 50, 0.95, 0.05),
    (5.0, 3, 0.5, 0.5),
    (0.01, 0, 1.0, 0.0),
    (100.0, 0, 0.999999, 1e-9),
    (0.0, 0, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, 0, 1e-12, 1.0),
    (1e-5, 0, 1.0, 0.0),
    (1e-40, 7, 0.5, 0.0),
]


@pytest.mark.parametrize("vocab", [1, 2, 17, 300, 1000])
@pytest.mark.parametrize("parameters", SETTINGS)
def test_same_draw(
    parameters: tuple[float, int, float, float], vocab: int, kernels: ModuleType, contexts: list[Any]
) -> None:
    logits = (np.random.default_rng(vocab).standard_normal(vocab) * 4).astype(np.float32)
    logits[vocab // 2] = logits.max()  # a tie
    logits[::7] = np.where(logits[::7] == logits.max(), logits[::7], -np.inf)  # excluded ids
    for seed, token, choice in [(0, 0, 0), (-1, 3, 0), (2**63 - 1, 0, 5), (-(2**63), 1000, 1), (42, 1, 0)]:
        expected = reference.sample(logits, *parameters, seed, token, choice)
        drawn = {kernels.sample(ctx, logits, *parameters, seed, token, choice) for ctx in contexts}
        assert drawn == {expected}


def test_case_s04_ties_at_the_top_go_to_the_lowest_id(kernels: ModuleType, contexts: list[Any]) -> None:
    logits = np.full(32_000, -10, np.float32)
    logits[[17, 301]] = 21.375
    for parameters in [(1.0, 1, 1.0, 0.0), (0.0, 0, 1.0, 0.0), (1.0, 0, 1e-6, 0.0), (1e-8, 0, 1.0, 0.0)]:
        for ctx in contexts[::4]:
            drawn = {kernels.sample(ctx, logits, *parameters, seed, 0, 0) for seed in range(10)}
            assert drawn == {17}, parameters
    both = {kernels.sample(contexts[-1], logits, 1.0, 2, 1.0, 0.0, seed, 0, 0) for seed in range(50)}
    assert both == {17, 301}, "without a filter both ties can be drawn"


def test_min_p_is_compared_exactly(kernels: ModuleType, contexts: list[Any]) -> None:
    logits = np.float32([0, -1, -0.5])
    weight = weights(logits, 1.0)[1]
    for excess, possible in ((0.0, {0, 1, 2}), (0.5, {0, 2}), (1.0, {0, 2})):
        least = (weight + excess) / 2**40  # exact in binary64
        for ctx in contexts[::3]:
            assert {kernels.sample(ctx, logits, 1.0, 0, 1.0, least, s, 0, 0) for s in range(60)} == possible


def test_top_p_is_compared_exactly(kernels: ModuleType, contexts: list[Any]) -> None:
    logits = np.zeros(4, np.float32)  # a prefix of two weighs exactly half
    for top_p, possible in ((0.5, {0, 1}), (0.5 + 2**-33, {0, 1}), (0.5 + 2**-32, {0, 1, 2}), (0.25, {0})):
        for ctx in contexts[::3]:
            assert {kernels.sample(ctx, logits, 1.0, 0, top_p, 0.0, s, 0, 0) for s in range(60)} == possible


@given(
    vocab=st.integers(1, 70),
    temperature=st.floats(0, 3),
    top_k=st.integers(0, 20),
    top_p=st.floats(0.0001, 1),
    min_p=st.floats(0, 1),
    seed=st.integers(-(2**63), 2**63 - 1),
    token=st.integers(0, 2**31 - 1),
    choice=st.integers(0, 127),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_parameters(
    vocab: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    token: int,
    choice: int,
    kernels: ModuleType,
    contexts: list[Any],
) -> None:
    logits = np.random.default_rng(vocab).integers(-6, 6, vocab).astype(np.float32) / np.float32(2)
    arguments = (temperature, top_k, top_p, min_p, seed, token, choice)
    expected = reference.sample(logits, *arguments)
    assert {kernels.sample(ctx, logits, *arguments) for ctx in contexts} == {expected}


def test_negative_control_a_draw_by_floats_is_told_apart() -> None:
    logits = np.random.default_rng(1).standard_normal(200).astype(np.float32)
    draws, others = [], []
    for seed in range(300):
        draws.append(reference.sample(logits, 1.0, 0, 1.0, 0.0, seed, 0, 0))
        p = np.exp(logits - logits.max())
        others.append(int(np.searchsorted(np.cumsum(p / p.sum()), np.random.default_rng(seed).random())))
    assert draws != others
