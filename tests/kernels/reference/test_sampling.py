"""Sampling as defined: case S04, exactness, statistics."""

from __future__ import annotations

import importlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.kernels import reference
from samebits.kernels.reference.sample import kept, weights
from samebits.numerics import assert_bitwise_equal, first_difference, random_u64


def draw(logits: np.ndarray, seed: int, *, t: float = 1.0, k: int = 0, p: float = 1.0, m: float = 0.0) -> int:
    return reference.sample(logits, t, k, p, m, seed, 0, 0)


def test_case_s04_ties_at_the_top_go_to_the_lowest_id() -> None:
    logits = np.full(1000, -10, np.float32)
    logits[[17, 301]] = 21.375
    for seed in range(200):
        assert draw(logits, seed, k=1) == 17
        assert draw(logits, seed, t=0.0) == 17
        assert draw(logits, seed, p=1e-6) == 17
        assert draw(logits, seed, t=1e-8) == 17
    assert {draw(logits, seed) for seed in range(50)} == {17, 301}
    assert {draw(logits, seed, t=1e-5) for seed in range(50)} == {17, 301}, "above 2^-17 a tie is a tie"


def test_frequencies_follow_the_softmax() -> None:
    logits = np.float32([2.0, 1.0, 0.0, -1.0, 0.5, -30.0])
    p = np.exp(logits.astype(np.float64))
    p /= p.sum()
    n = 20_000
    counts = np.bincount([draw(logits, seed) for seed in range(n)], minlength=6)
    chi_square = ((counts - n * p)[:5] ** 2 / (n * p)[:5]).sum()
    assert chi_square < 18.5, "0.1 % of a right sampler's runs exceed this with four degrees; the seeds are fixed"
    assert counts[5] == 0


def test_token_and_choice_change_the_draw_and_nothing_else_does() -> None:
    logits = np.zeros(1000, np.float32)
    by_token = [reference.sample(logits, 1.0, 0, 1.0, 0.0, 7, t, 0) for t in range(20)]
    by_choice = [reference.sample(logits, 1.0, 0, 1.0, 0.0, 7, 0, c) for c in range(20)]
    assert len(set(by_token)) > 15
    assert len(set(by_choice)) > 15
    assert by_token[0] == by_choice[0]
    assert by_token == [reference.sample(logits, 1.0, 0, 1.0, 0.0, 7, t, 0) for t in range(20)]


def test_a_draw_is_the_exact_inverse_of_the_distribution() -> None:
    logits = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    w = weights(logits, 0.8)
    assert max(w) == 2**40
    for seed in range(300):
        target = math.floor(Fraction(random_u64(seed, 0, 0) * sum(w), 2**64))
        sums = np.cumsum(np.array(w, object))
        expected = next(i for i, total in enumerate(sums) if total > target)
        assert draw(logits, seed, t=0.8) == expected


@given(
    st.lists(st.integers(-8, 8), min_size=1, max_size=40),
    st.integers(0, 9),
    st.floats(1e-9, 1),
    st.floats(0, 1),
)
@settings(max_examples=200)
def test_filters_as_fractions(values: list[int], k: int, p: float, m: float) -> None:
    logits = np.array(values, np.float32) / np.float32(2)
    w = weights(logits, 1.0)
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    order = order[:k] if k else order
    if p < 1:
        wanted = Fraction(math.floor(Fraction(p) * 2**32), 2**32) * sum(w[i] for i in order)
        count = next(n for n in range(1, len(order) + 1) if sum(w[i] for i in order[:n]) >= wanted)
        order = order[:count]
    if m > 0:
        order = [i for i in order if w[i] >= math.ceil(Fraction(m) * 2**40) or i == order[0]]
    assert kept(logits, w, k, p, m) == order
    assert draw(logits, 3, k=k, p=p, m=m) in order


def test_a_target_equal_to_a_running_sum_goes_to_the_next_id(monkeypatch: pytest.MonkeyPatch) -> None:
    for u, expected in ((2**63 - 1, 0), (2**63, 1), (2**64 - 1, 1), (0, 0)):
        module = importlib.import_module("samebits.kernels.reference.sample")
        monkeypatch.setattr(module, "random_u64", lambda *_, u=u: u)
        assert draw(np.zeros(2, np.float32), 0) == expected


def test_ids_without_weight_are_never_drawn() -> None:
    logits = np.float32([0, -28, -27, -np.inf])  # 2^-40 is e^-27.7
    assert [w > 0 for w in weights(logits, 1.0)] == [True, False, True, False]
    assert {draw(logits, seed) for seed in range(300)} == {0}
    assert weights(np.float32([3e38, -3e38]), 0.5) == [2**40, 0], "the difference overflows to −∞"


def test_penalties_and_bias() -> None:
    logits = np.float32([2.0, -2.0, 0.0, 1.0, 5.0])
    got = reference.adjust(
        logits, [0, 1, 1], [3, 3], repetition=1.3, frequency=0.5, presence=0.25, bias={4: -100.0, 2: 1.5}
    )
    rho = np.float32(1.3)
    three = np.float32(1) / rho - np.float32(0.5) * np.float32(2) - np.float32(0.25)
    expected = np.array([np.float32(2) / rho, np.float32(-2) * rho, 1.5, three, -95], np.float32)
    assert_bitwise_equal(got, expected)
    assert first_difference(reference.adjust(logits, [0], [3]), logits) is None, "all off"


@pytest.mark.parametrize("temperature", [0.0, 1e-50, 1e-40, 7.6e-6])
def test_a_temperature_below_the_least_is_the_argmax(temperature: float) -> None:
    logits = np.float32([1, 3, 3, 2])
    assert {draw(logits, seed, t=temperature) for seed in range(40)} == {1}
