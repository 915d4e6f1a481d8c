"""Intervals hold what they promise, and what is too rare to be seen is said."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from samebits.audit.intervals import (
    chance_unseen,
    departure_interval,
    mean_interval,
    rate_interval,
    rule_of_three,
    runs_needed,
    smallest_rate_seen,
    unseen_departures,
)
from samebits.errors import InputError


@dataclass(frozen=True)
class Rates:
    """Simulated audits: a value for each prompt, (audits, prompts), and the mean over all prompts there could be."""

    values: NDArray[np.float64]
    mean: float


def test_known_values_of_rare_departures() -> None:
    """The figures of a table that anyone can check by hand."""
    assert 1 - chance_unseen(0.5, 5) == 0.9375
    assert round(chance_unseen(0.006, 20), 3) == 0.887
    assert runs_needed(0.006) == 498
    assert math.isclose(rule_of_three(20), 2.9957 / 20, rel_tol=1e-4)
    assert math.isclose(1 - (1 - rule_of_three(10_000)) ** 10_000, 0.95, abs_tol=1e-4)


def test_five_runs_are_sure_of_nothing() -> None:
    assert smallest_rate_seen(5) is None
    assert unseen_departures([5]) == 0.5
    assert runs_needed(0.5) == 6
    assert smallest_rate_seen(6) is not None


@given(st.floats(0.001, 0.5), st.floats(0.5, 0.999))
def test_the_runs_needed_suffice_and_one_less_does_not(rate: float, power: float) -> None:
    runs = runs_needed(rate, power)
    assert chance_unseen(rate, runs) <= 1 - power
    assert runs == 2 or chance_unseen(rate, runs - 1) > 1 - power


@given(st.integers(6, 5000), st.floats(0.5, 0.95))
def test_the_smallest_rate_is_seen_and_a_smaller_one_is_not(runs: int, power: float) -> None:
    rate = smallest_rate_seen(runs, power)
    assert rate is not None
    assert math.isclose(chance_unseen(rate, runs), 1 - power, rel_tol=1e-6)
    assert chance_unseen(rate * 0.9, runs) > 1 - power


@given(st.integers(2, 10_000).flatmap(lambda n: st.tuples(st.integers(1, n - 1), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_interval_as_scipy_has_it(counts: tuple[int, int], confidence: float) -> None:
    found = rate_interval(*counts, confidence)
    expected = binomtest(*counts).proportion_ci(confidence, method="wilson")
    assert math.isclose(found.low, expected.low, rel_tol=1e-9)
    assert math.isclose(found.high, expected.high, rel_tol=1e-9)
    assert found.method == "Wilson"


def test_none_and_all_have_the_rule_of_three() -> None:
    none, every = rate_interval(0, 300), rate_interval(300, 300)
    assert none.low == 0
    assert none.high == rule_of_three(300)
    assert every.high == 1
    assert every.low == 1 - rule_of_three(300)
    assert rate_interval(0, 1).high == 1


@pytest.mark.parametrize("rate", [0.006, 0.05, 0.1, 0.3])
def test_intervals_cover_the_true_rate(rate: float) -> None:
    """Wilson's interval covers at about its level; 20,000 draws put the standard error at 0.15 %.

    The rule of three is one-sided. So at a rate of just above 3/runs its 5 % of misses, of the runs without an event,
    come on top of the misses on the other side.
    """
    runs = 500
    events = np.random.default_rng(3).binomial(runs, rate, 20_000)
    found = {int(k): rate_interval(int(k), runs) for k in np.unique(events)}
    covered = np.mean([found[int(k)].low <= rate <= found[int(k)].high for k in events])
    assert covered > (0.91 if rate <= 3.1 / runs else 0.93)
    narrow = {k: rate_interval(k, runs, 0.5) for k in found}
    assert np.mean([narrow[int(k)].low <= rate <= narrow[int(k)].high for k in events]) < 0.75  # negative control


@pytest.mark.parametrize("runs", [2, 3, 4, 5, 10, 40])
def test_agreement_excludes_what_it_claims(runs: int) -> None:
    """Whatever the rates of the prompts, if their mean is above the bound, all of them agree in under 5 % of audits."""
    prompts = 60
    bound = unseen_departures([runs] * prompts)
    grid = np.linspace(0, 0.5, 51)
    log_chance = np.log([chance_unseen(float(u), runs) for u in grid])
    worst = -math.inf
    # Mixtures of two rates are enough: the worst case of a sum with a fixed mean lies on the concave envelope.
    for (i, low), (j, high) in itertools.combinations(enumerate(grid), 2):
        if low <= bound < high:
            share = (bound - low) / (high - low)
            worst = max(worst, prompts * ((1 - share) * log_chance[i] + share * log_chance[j]))
    assert math.exp(worst) <= 0.05 + 1e-9


def test_negative_control_three_over_n_would_claim_too_much_from_two_runs() -> None:
    prompts = 60
    naive = 3 / (2 * prompts)
    flipping = naive / 0.5  # this share of the prompts is a coin flip, the others never depart
    assert chance_unseen(0.5, 2) ** (prompts * flipping) > 0.05
    assert unseen_departures([2] * prompts) > naive
    assert math.isclose(unseen_departures([4] * prompts), rule_of_three(4 * prompts))


def test_prompts_with_one_run_do_not_count() -> None:
    assert unseen_departures([1, 1, 10]) == unseen_departures([10])
    assert departure_interval(1, [1, 1, 10]) == rate_interval(1, 10)
    with pytest.raises(InputError, match="at least twice"):
        unseen_departures([1, 1])


def test_a_mean_over_prompts_without_spread_shows_none() -> None:
    values = np.random.default_rng(0).random(9)
    found = mean_interval(values)
    assert found is not None
    assert found == mean_interval(values)
    assert 0 < found.low < values.mean() < found.high < 1
    assert mean_interval(np.ones(5)) is None
    assert mean_interval(np.array([0.5])) is None


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.floats(0.5, 0.999), st.floats(-5, 5), st.floats(0.1, 90))
def test_it_stays_where_values_can_be(values: list[float], confidence: float, low: float, width: float) -> None:
    shares = np.array(values)
    found = mean_interval(shares, confidence=confidence)
    if found is None or np.ptp(shares) < 1e-6:
        return
    assert -1e-12 <= found.low <= shares.mean() <= found.high <= 1 + 1e-12
    scaled = mean_interval(low + width * shares, low=low - 1e-9, high=low + width + 1e-9, confidence=confidence)
    assert scaled is not None
    assert math.isclose(scaled.low, low + width * found.low, abs_tol=1e-5)
    assert math.isclose(scaled.high, low + width * found.high, abs_tol=1e-5)


def test_with_yes_and_no_alone_and_many_prompts_it_is_wilsons() -> None:
    values = np.repeat([1.0, 0.0], [1700, 300])
    found, known = mean_interval(values), rate_interval(1700, 2000)
    assert found is not None
    assert math.isclose(found.low, known.low, abs_tol=2e-5)
    assert math.isclose(found.high, known.high, abs_tol=2e-5)


def repeat_rates(rng: np.random.Generator, audits: int, prompts: int) -> Rates:
    """Exact-repeat rates of 20 runs a prompt, most of which hardly ever depart; and their mean over all prompts."""
    rates, runs = rng.beta(0.4, 3, (audits, prompts)), 20
    counts = rng.multinomial(runs, np.stack([1 - rates, *[rates / 3] * 3], -1))
    everywhere = rng.beta(0.4, 3, 400_000)
    mean = float(np.mean((1 - everywhere) ** 2 + everywhere**2 / 3))
    return Rates((counts * (counts - 1)).sum(-1) / (runs * (runs - 1)), mean)


def skewed(rng: np.random.Generator, audits: int, prompts: int) -> Rates:
    return Rates(rng.beta(8, 1, (audits, prompts)), 8 / 9)


def mostly_one(rng: np.random.Generator, audits: int, prompts: int) -> Rates:
    """Eight of ten prompts always repeat."""
    same = rng.random((audits, prompts)) < 0.8
    return Rates(np.where(same, 1, rng.uniform(0.2, 0.9, (audits, prompts))), 0.8 + 0.2 * 0.55)


def even(rng: np.random.Generator, audits: int, prompts: int) -> Rates:
    return Rates(rng.beta(4, 2, (audits, prompts)), 4 / 6)


@pytest.mark.parametrize("population", [repeat_rates, skewed, mostly_one, even])
@pytest.mark.parametrize("prompts", [5, 8, 10, 26])
def test_means_over_few_prompts_are_covered(population: Callable[..., Rates], prompts: int) -> None:
    """In 1,000 simulations, of which 930 to 980 were covered where this was chosen; the standard error is 7."""
    rng = np.random.default_rng(5)
    found = population(rng, 1000, prompts)
    intervals = [(row, interval) for row in found.values if (interval := mean_interval(row)) is not None]
    covered = np.mean([i.low <= found.mean <= i.high for _, i in intervals])
    assert covered > 0.92
    picks = rng.integers(0, prompts, (len(intervals), 300, prompts))
    again = np.take_along_axis(np.stack([row for row, _ in intervals])[:, None], picks, 2).mean(2)
    low, high = np.quantile(again, [0.025, 0.975], axis=1)
    bootstrap = np.mean((low <= found.mean) & (found.mean <= high))
    assert bootstrap < covered  # negative control: percentiles of resampled prompts are too narrow


@pytest.mark.parametrize(
    "call",
    [
        lambda: rule_of_three(0),
        lambda: rate_interval(3, 2),
        lambda: rate_interval(0, 10, 1.0),
        lambda: chance_unseen(0.6, 5),
        lambda: runs_needed(0),
        lambda: smallest_rate_seen(0),
        lambda: mean_interval(np.array([0.5, 1.5])),
    ],
)
def test_nonsense_is_refused(call: object) -> None:
    with pytest.raises(InputError, match="Give"):
        call()  # type: ignore[operator]
