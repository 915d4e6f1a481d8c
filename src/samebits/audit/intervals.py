"""How far a rate can be trusted: intervals, what was too rare to be seen, and how many runs would have seen it.

A run *departs* when its answer is not the most common one of its prompt. Formulas and their sources are in
docs/guide/audit-metrics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator
from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from samebits.audit.ranges import Count, Positive, Share
from samebits.errors import InputError

CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Interval:
    """Where a value lies with the given confidence; `method` names how that was found."""

    low: Positive
    high: Positive
    confidence: Share
    method: str

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; None is not measured, or has no interval.

    Attributes:
        value: the estimate.
        interval: its interval.
        count: how many things it was taken over: runs, pairs, prompts; `unit` says which.
    """

    value: Positive | None
    interval: Interval | None
    count: Count
    unit: str


def _share_interval(found: Interval) -> Interval:
    if found.high > 1:
        raise ValueError(f"{found.high} is no share")
    return found


def _share_estimate(found: Estimate) -> Estimate:
    if (found.value or 0) > 1:
        raise ValueError(f"{found.value} is no share")
    if found.interval is not None:
        _share_interval(found.interval)
    return found


ShareInterval = Annotated[Interval, AfterValidator(_share_interval)]
ShareEstimate = Annotated[Estimate, AfterValidator(_share_estimate)]


def rule_of_three(runs: int, confidence: float = CONFIDENCE) -> float:
    """The rate that `runs` runs without an event exclude: −ln(1 − confidence)/runs, at 95 % about 3/runs, at most 1.

    Raises:
        InputError: no runs, or a confidence outside (0, 1).
    """
    _check(runs, confidence)
    return min(1.0, -math.log1p(-confidence) / runs)


def rate_interval(events: int, runs: int, confidence: float = CONFIDENCE) -> Interval:
    """Interval of a rate: Wilson's; the rule of three where all or none of the runs had the event.

    Raises:
        InputError: no runs, more events than runs, or a confidence outside (0, 1).
    """
    _check(runs, confidence)
    if not 0 <= events <= runs:
        raise InputError(f"{events} of {runs} runs", field="events", remedy="Give 0 to as many as there are runs.")
    if events == 0:
        return Interval(0.0, rule_of_three(runs, confidence), confidence, "rule of three")
    if events == runs:
        return Interval(1 - rule_of_three(runs, confidence), 1.0, confidence, "rule of three")
    low, high = _score_ends(events / runs, runs, float(ndtri(0.5 + confidence / 2)))
    return Interval(low, high, confidence, "Wilson")


def unseen_departures(runs_by_prompt: Sequence[int], confidence: float = CONFIDENCE) -> float:
    """The rate of departing runs that agreement of all runs of each prompt excludes; at most 0.5.

    The most common answer is not known beforehand: where it has probability 1 − u, n runs agree with a chance of up to
    (1 − u)ⁿ + uⁿ, which is at most exp(−c·u) with c = min(n, 2·ln 2·(n − 1)). So it is the rule of three over Σc in
    place of Σn: 3/N from four runs a prompt on, more with two or three. A prompt with one run shows nothing.

    Raises:
        InputError: no prompt has two runs.
    """
    counts = [n for n in runs_by_prompt if n > 1]
    if not counts:
        raise InputError("no prompt has two runs", field="runs", remedy="Repeat each prompt at least twice.")
    worst = min(min(n, 2 * math.log(2) * (n - 1)) / n for n in counts)
    return min(0.5, rule_of_three(sum(counts), confidence) / worst)


def departure_interval(departures: int, runs_by_prompt: Sequence[int], confidence: float = CONFIDENCE) -> Interval:
    """Interval of the rate of departing runs, of these prompts.

    Raises:
        InputError: no prompt has two runs.
    """
    if departures == 0:
        high = unseen_departures(runs_by_prompt, confidence)
        return Interval(0.0, high, confidence, "rule of three")
    return rate_interval(departures, sum(n for n in runs_by_prompt if n > 1), confidence)


def chance_unseen(rate: float, runs: int) -> float:
    """Chance that runs of one prompt all agree although a run departs with probability `rate`, at most 0.5.

    Raises:
        InputError: fewer than one run, or a rate outside [0, 0.5].
    """
    if not 0 <= rate <= 0.5:
        raise InputError(f"{rate} is out of range", field="rate", remedy="Give 0 to 0.5; the most common answer stays.")
    _check(runs, CONFIDENCE)
    return float((1 - rate) ** runs + rate**runs)


def smallest_rate_seen(runs: int, power: float = CONFIDENCE) -> float | None:
    """The smallest rate of departing runs that N runs of a prompt show with chance `power`; None where none is.

    Raises:
        InputError: no runs, or a power outside (0, 1).
    """
    _check(runs, power)
    if chance_unseen(0.5, runs) > 1 - power:
        return None
    return float(brentq(lambda rate: chance_unseen(rate, runs) - (1 - power), 0.0, 0.5, xtol=1e-12))


def runs_needed(rate: float, power: float = CONFIDENCE) -> int:
    """The fewest runs of a prompt that show departures of this rate with chance `power`.

    Raises:
        InputError: a rate outside (0, 0.5], or a power outside (0, 1).
    """
    _check(1, power)
    if not 0 < rate <= 0.5:
        raise InputError(f"{rate} is out of range", field="rate", remedy="Give more than 0, at most 0.5.")
    runs = max(2, math.ceil(math.log1p(-power) / math.log1p(-rate)))
    while chance_unseen(rate, runs) > 1 - power:
        runs += 1
    return runs


def mean_interval(
    values: NDArray[np.float64], *, low: float = 0.0, high: float = 1.0, confidence: float = CONFIDENCE
) -> Interval | None:
    """Interval of the mean over prompts, were the prompts others of their kind: Wilson's, with as many runs as would
    spread as the prompts do, and Student's quantile for that spread.

    Args:
        values: one for each prompt, (P,).
        low, high: no value can lie beyond these.

    Returns:
        None where there are fewer than two prompts, or all have the same value: they show no spread, which is not to
        say that there is none.

    Raises:
        InputError: a value beyond `low` and `high`, or a confidence outside (0, 1).
    """
    _check(max(len(values), 1), confidence)
    if np.any((values < low) | (values > high)):
        raise InputError("a value is out of range", field="values", remedy=f"Give {low:g} to {high:g}.")
    prompts = len(values)
    if prompts < 2 or np.all(values == values[0]):
        return None
    shares = (values - low) / (high - low)
    mean, variance = float(shares.mean()), float(shares.var(ddof=1))
    if not 0 < mean < 1 or variance == 0:  # they differ by less than doubles of their sums can tell
        return None
    runs = mean * (1 - mean) * prompts / variance
    t = float(stdtrit(prompts - 1, 0.5 + confidence / 2))
    least, most = (low + (high - low) * end for end in _score_ends(mean, runs, t))
    return Interval(least, most, confidence, "Wilson over prompts")


def _score_ends(share: float, runs: float, z: float) -> tuple[float, float]:
    """Both ends of Wilson's interval."""
    centre, scale = share + z * z / (2 * runs), 1 + z * z / runs
    half = z * math.sqrt(share * (1 - share) / runs + (z / (2 * runs)) ** 2)
    return (centre - half) / scale, (centre + half) / scale


def _check(runs: int, confidence: float) -> None:
    if runs < 1:
        raise InputError(f"{runs} runs show nothing", field="runs", remedy="Give at least 1.")
    if not 0 < confidence < 1:
        raise InputError(f"{confidence} is out of range", field="confidence", remedy="Give more than 0, less than 1.")
