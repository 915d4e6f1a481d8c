"""The permutation test behind the causes: exact where it can be enumerated, and at its level under the null."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from samebits.audit.association import association, most_common, tail_shares

Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def arrays(codes: object, levels: object, strata: object, prompts: object = None) -> Arrays:
    """Strata double as prompts where none are given."""
    c, x, s, p = (np.asarray(a, np.int64) for a in (codes, levels, strata, strata if prompts is None else prompts))
    return c, p, most_common(c, p), x, s


def null_runs(rng: np.random.Generator, rate: float = 0.2, strata: int = 12, size: int = 6) -> Arrays:
    """Runs that flip at one rate whatever their level; half of each stratum at either level."""
    flips = rng.random((strata, size)) < rate
    codes = flips + 2 * np.arange(strata)[:, None]
    levels = np.tile(np.arange(size) % 2, (strata, 1))
    return arrays(codes.ravel(), levels.ravel(), np.repeat(np.arange(strata), size))


def p_of(data: Arrays, seed: int = 0, permutations: int = 199) -> float:
    return association(*data, rng=np.random.default_rng(seed), permutations=permutations)


def test_one_table_by_enumeration() -> None:
    """Three flips of eight runs, all at level 1: of the 70 deals 5 have that table and 5 its mirror image."""
    codes, levels = [0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]
    extreme = sum({5, 6, 7} <= set(deal) or not {5, 6, 7} & set(deal) for deal in itertools.combinations(range(8), 4))
    assert extreme == 10
    found = p_of(arrays(codes, levels, [0] * 8), permutations=20_000)
    assert math.isclose(found, extreme / 70, abs_tol=0.01)


def test_level_under_the_null() -> None:
    rng = np.random.default_rng(11)
    pvalues = np.array([p_of(null_runs(rng), seed) for seed in range(1000)])
    assert np.sum(pvalues <= 0.05) <= 71  # 50 expected at most; 71 is three standard errors above
    assert np.sum(pvalues <= 0.01) <= 20
    assert np.sum(pvalues <= 0.5) > 350  # negative control: the test is alive, not just silent


def test_negative_control_a_reference_that_depends_on_the_level_alarms_too_often() -> None:
    """Why `common` may not be, say, the answer at the first level: each prompt then seems to depart at the second."""
    rng = np.random.default_rng(12)
    alarms = 0
    for seed in range(200):
        codes, prompts, _, levels, strata = null_runs(rng, rate=0.5, size=2)
        alarms += p_of((codes, prompts, codes[levels == 0], levels, strata), seed, permutations=99) <= 0.05
    assert alarms > 50


def test_rare_departures_that_always_fall_on_one_level_are_seen() -> None:
    """One flip in each of 14 strata says nothing alone; together they do."""
    strata = np.repeat(np.arange(40), 10)
    levels = np.tile(np.repeat([0, 1], 5), 40)
    codes = 2 * strata
    codes[[10 * s + 7 for s in range(14)]] += 1
    assert p_of(arrays(codes, levels, strata), permutations=1999) < 0.005
    mixed = 2 * strata
    mixed[[10 * s + (7 if s % 2 else 2) for s in range(14)]] += 1
    assert p_of(arrays(mixed, levels, strata), permutations=1999) > 0.2


def test_answers_that_follow_the_level_are_seen_though_none_is_common() -> None:
    """Each prompt has one answer at level 0 and another at level 1; which is the common one is chance."""
    strata = np.repeat(np.arange(6), 6)
    levels = np.tile([0, 0, 0, 1, 1, 1], 6)
    codes = 2 * strata + np.where(strata % 2, levels, 1 - levels)
    assert p_of(arrays(codes, levels, strata), permutations=1999) < 0.005


def one_run_a_level(follows: NDArray[np.int64]) -> Arrays:
    """Eight prompts with four strata each, of two runs; `follows`, (64,): which of its prompt's answers a run gave."""
    prompts = np.repeat(np.arange(8), 8)
    return arrays(2 * prompts + follows, np.tile([0, 1], 32), np.repeat(np.arange(32), 2), prompts)


def test_answers_that_follow_the_level_are_seen_with_one_run_at_each() -> None:
    """No stratum can show it alone, and which answer is the common one is chance."""
    levels, odd = np.tile([0, 1], 32), np.repeat(np.arange(8) % 2, 8)
    assert p_of(one_run_a_level(np.where(odd, levels, 1 - levels)), permutations=1999) < 0.005
    # Negative control: as many of both answers at both levels.
    in_turn = np.repeat(np.arange(32) % 2, 2)
    assert p_of(one_run_a_level(np.where(in_turn, levels, 1 - levels)), permutations=1999) > 0.2


def test_level_under_the_null_with_one_run_at_each() -> None:
    rng = np.random.default_rng(13)
    pvalues = np.array([p_of(one_run_a_level(rng.integers(0, 2, 64)), seed) for seed in range(200)])
    assert np.sum(pvalues <= 0.05) <= 20  # 10 expected at most; 20 is three standard errors above
    assert np.sum(pvalues <= 0.5) > 70


def test_three_levels_of_different_size() -> None:
    strata = np.repeat(np.arange(5), 9)
    levels = np.tile([0, 0, 0, 0, 0, 1, 1, 2, 2], 5)
    assert p_of(arrays(2 * strata + (levels == 2), levels, strata)) < 0.01
    assert p_of(arrays(2 * strata + (np.arange(45) % 7 == 0), levels, strata)) > 0.05


def test_nothing_to_test_is_no_alarm() -> None:
    assert p_of(arrays([0] * 8, [0, 1] * 4, [0] * 8)) == 1.0
    assert p_of(arrays([0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1])) == 1.0


@pytest.mark.parametrize("size", [50, 5000])
def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    data = null_runs(np.random.default_rng(3))
    p = p_of(data, permutations=999)
    monkeypatch.setattr("samebits.audit.association.TABLE_CELLS", size)
    # Other draws belong to other tables, so the p-values differ by chance alone.
    assert math.isclose(p_of(data, permutations=999), p, abs_tol=4 * math.sqrt(0.25 / 999))


def test_tail_shares_and_the_common_class() -> None:
    assert tail_shares(np.array([1.0, 3.0, 2.0, 3.0 - 1e-12])).tolist() == [1.0, 0.5, 0.75, 0.5]
    codes, prompts = np.array([5, 4, 4, 9, 8, 8, 9]), np.array([0, 0, 0, 1, 1, 1, 1])
    assert most_common(codes, prompts).tolist() == [4, 8]
