"""The model-equality test: its kernel by hand, its level under the null, its power on known shifts."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.audit.mmd import TwoSamples, hamming_kernel, mmd_test, power, two_samples
from samebits.errors import InputError

LETTERS = "abcd"


def draw(rng: random.Random, runs: int, share: float = 0.0) -> list[str]:
    """Short random answers; a share of them moves to letters that the others do not use."""
    return ["".join(rng.choices("xyz" if rng.random() < share else LETTERS, weights=None, k=6)) for _ in range(runs)]


def sides(seed: int, share: float, prompts: int = 4, runs: int = 10) -> list[TwoSamples]:
    rng = random.Random(seed)
    return [two_samples(draw(rng, runs), draw(rng, runs, share)) for _ in range(prompts)]


def by_double_loop(first: list[str], second: list[str]) -> float:
    """The estimate by its definition, over all pairs of runs."""
    length = max(map(len, [*first, *second]))

    def k(a: str, b: str) -> float:
        return sum(x == y for x, y in zip(a.ljust(length, "\0"), b.ljust(length, "\0"), strict=True)) / length

    within = [np.mean([k(a, b) for a, b in itertools.permutations(side, 2)]) for side in (first, second)]
    return float(sum(within) - 2 * np.mean([k(a, b) for a in first for b in second]))


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=2, max_size=6),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=2, max_size=6),
)
def test_the_estimate_by_its_definition(first: list[str], second: list[str]) -> None:
    assert two_samples(first, second).mmd2 == pytest.approx(by_double_loop(first, second), abs=1e-12)


def test_kernel_by_hand() -> None:
    kernel = hamming_kernel(["abcd", "abxd", "ab", ""])
    assert kernel[0].tolist() == pytest.approx([1, 0.75, 0.5, 0])
    assert kernel[2, 3] == pytest.approx(0.5)
    assert np.all(np.diag(kernel) == 1)
    assert hamming_kernel([(1, 2), (1, 3)])[0, 1] == 0.5
    assert hamming_kernel(["abX", "abY"], prefix=2)[0, 1] == 1.0
    assert hamming_kernel([""]).tolist() == [[1.0]]


def test_ids_of_any_size_are_told_apart() -> None:
    """A shorter answer is filled up with a sign of its own, which no id is."""
    kernel = hamming_kernel([(10**30, -1), (10**30,), (10**30 + 1, -1), (2**64, -5)])
    assert kernel[0].tolist() == [1, 0.5, 0.5, 0]
    assert kernel[3].tolist() == [0, 0, 0, 1]


def test_known_values() -> None:
    apart = two_samples(["aa"] * 5, ["bb"] * 5)
    assert apart.mmd2 == pytest.approx(2.0)
    assert mmd_test([apart], seed=0).shift == pytest.approx(1.0)
    assert mmd_test([apart], seed=0).p == pytest.approx(2 / math.comb(10, 5), abs=0.005)
    assert two_samples(["aa"] * 5, ["ab"] * 5).mmd2 == pytest.approx(1.0)
    same = mmd_test([two_samples(["aa"] * 5, ["aa"] * 5)], seed=0)
    assert (same.mmd2, same.p, same.shift) == (0.0, 1.0, 0.0)


def test_level_under_the_null() -> None:
    tests = [mmd_test(sides(seed, 0.0), seed=seed, permutations=199) for seed in range(1000)]
    assert sum(t.p <= 0.05 for t in tests) <= 71  # 50 expected; 71 is three standard errors above
    assert sum(t.p <= 0.01 for t in tests) <= 20
    assert sum(t.p <= 0.5 for t in tests) > 400  # negative control: it is alive
    assert abs(np.mean([t.mmd2 for t in tests])) < 0.005  # unbiased


@pytest.mark.parametrize(("share", "least"), [(0.3, 40), (0.5, 95)])
def test_power_on_a_known_shift(share: float, least: int) -> None:
    """Ten answers of four prompts a side: 30 % moved is seen every other time, 50 % nearly always."""
    found = [mmd_test(sides(seed, share), seed=seed, permutations=199) for seed in range(100)]
    assert sum(t.p <= 0.05 for t in found) >= least


def test_the_shift_is_the_share_of_runs_that_moved() -> None:
    first, second = ["aaaa"] * 4000, ["aaaa"] * 3600 + ["bbbb"] * 400
    assert mmd_test([two_samples(first, second)], seed=0, permutations=99).shift == pytest.approx(0.1, abs=0.002)


def test_a_hundred_thousand_runs_make_a_hundredth_of_a_deviation_significant() -> None:
    """Why a p-value alone is no alarm: the effect is 0.7 % of the runs, whatever the p-value."""
    sample = TwoSamples(np.eye(2), np.array([50_000, 50_000]), np.array([50_700, 49_300]))
    found = [mmd_test([sample], seed=seed) for seed in range(5)]
    assert all(t.p <= 0.05 for t in found)
    assert found[0].shift == pytest.approx(0.007, abs=0.001)
    assert mmd_test([TwoSamples(np.eye(2), sample.first, sample.first)], seed=0).p > 0.9


def test_stated_power_agrees_with_what_happens() -> None:
    stated = power(sides(1, 0.0), 0.5, seed=0, level=0.05, simulations=100)
    assert stated > 0.9
    assert power(sides(1, 0.0), 0.01, seed=0, level=0.05, simulations=100) < 0.2


def test_one_moved_prompt_is_pointed_at() -> None:
    samples = sides(5, 0.0)
    rng = random.Random(6)
    samples[2] = two_samples(draw(rng, 10), draw(rng, 10, 1.0))
    found = mmd_test(samples, seed=0)
    assert found.prompt_p[2] < 0.001
    assert min(found.prompt_p[:2] + found.prompt_p[3:]) > 0.01


def test_equal_samples_and_seeds_give_equal_results() -> None:
    assert mmd_test(sides(3, 0.2), seed=4) == mmd_test(sides(3, 0.2), seed=4)
    assert mmd_test(sides(3, 0.2), seed=4).p != mmd_test(sides(3, 0.2), seed=5).p
    first, second = draw(random.Random(1), 20), draw(random.Random(2), 20)
    turned = two_samples(first[::-1], second[::-1])
    assert mmd_test([turned], seed=0) == mmd_test([two_samples(first, second)], seed=0)


def test_too_little_is_refused() -> None:
    with pytest.raises(InputError, match="two answers"):
        two_samples(["a"], ["a", "b"])
    with pytest.raises(InputError, match="prefix"):
        hamming_kernel(["a", "b"], prefix=0)
    with pytest.raises(InputError, match="two answers on both sides"):
        mmd_test([], seed=0)
