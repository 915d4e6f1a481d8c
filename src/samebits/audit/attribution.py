"""What moved the bits: each factor of a factorial design tested while all others are held fixed.

Runs are compared only within strata: the same prompt, and the same level of every other factor. If a factor does
nothing, its levels might as well be dealt out anew within each stratum; so they are, many times, and the association
between level and answer is compared with what that gives (docs/guide/audit-metrics.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from samebits.audit.agreement import READ_OUT
from samebits.audit.association import association, most_common
from samebits.audit.corrections import holm
from samebits.audit.intervals import CONFIDENCE, ShareInterval, rate_interval
from samebits.audit.observation import Observation, level_order
from samebits.audit.preconditions import Exercise, exercised
from samebits.audit.ranges import Count, Share
from samebits.audit.views import FAILED, SAME_WORDS, WITHOUT, Meaning, View, by_prompt, classify
from samebits.errors import InputError

# To name a cause is a strong claim: one audit in a hundred may name a wrong one.
LEVEL: Final = 0.01
PERMUTATIONS: Final = 4999
# Observed with the answer, not set by the experiment.
FINGERPRINT: Final = "fingerprint"

Status = Literal["moves the bits", "no effect seen", "not exercised", "not varied", "not separable"]


@dataclass(frozen=True)
class LevelRate:
    """Runs at one level.

    A departure is a run without the answer that is most common at the factor's first level, for its prompt; prompts
    that have no run at the first level are left out.
    """

    level: str
    runs: Count
    departures: Count
    interval: ShareInterval

    def __post_init__(self) -> None:
        if self.departures > self.runs or not self.runs:
            raise ValueError(f"departures {self.departures} of runs {self.runs}")

    @property
    def rate(self) -> float:
        """Departures a run."""
        return self.departures / self.runs


@dataclass(frozen=True)
class Factor:
    """What is known about one factor.

    Attributes:
        name: which.
        status: ``moves the bits``: the test is significant after correction. ``no effect seen``: it is not, although
            the factor was shown to be active. ``not exercised``: it is not, and nothing shows that it was active.
            ``not varied``: one level only. ``not separable``: it never changes while all others stay.
        levels: one for each level.
        p, adjusted: p-value of the test, and after Holm's correction over all factors tested; None where not tested.
        exercise: what shows that it was active; None where that is not in question.
        confounded: factors that always change along with it, where the status is ``not separable``.
    """

    name: str
    status: Status
    levels: tuple[LevelRate, ...]
    p: Share | None = None
    adjusted: Share | None = None
    exercise: Exercise | None = None
    confounded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attribution:
    """What moved the bits, in one view.

    Attributes:
        view: which.
        factors: one for each, in alphabetical order.
        within_pairs, within_differing: pairs of runs of one prompt under one and the same condition; of these, that
            differ: what no factor explains.
        level: chance that some factor is named although none does anything, at most.
        permutations: of each test; no p-value is below 1/(permutations + 1).
    """

    view: View
    factors: tuple[Factor, ...]
    within_pairs: Count
    within_differing: Count
    level: Share
    permutations: Count

    @property
    def causes(self) -> tuple[str, ...]:
        """The factors that move the bits."""
        return tuple(f.name for f in self.factors if f.status == "moves the bits")

    def factor(self, name: str) -> Factor:
        """One factor."""
        return next(f for f in self.factors if f.name == name)


def attribute(
    observations: Sequence[Observation],
    view: View,
    *,
    seed: int,
    meaning: Meaning = SAME_WORDS,
    level: float = LEVEL,
    permutations: int = PERMUTATIONS,
    confidence: float = CONFIDENCE,
) -> Attribution:
    """Which factors moved the answers of one target, in one view.

    Failed runs, and those to which no seed was sent, are left out. ``fingerprint`` is a factor too: it is held fixed
    only in the test of ``time``, and ``time`` is not held fixed in its test, as a new fingerprint comes at a new time.

    Args:
        seed: of the permutations; equal observations and seeds give equal results, whatever the order of the runs.
        level: for all factors together.

    Raises:
        InputError: no run can be compared in this view, more than one target, or too few permutations for the level.
    """
    kept = [o for o in observations if o.level("seed") != "none"]
    if len({o.target for o in kept}) > 1:
        raise InputError("of more than one target", field="observations", remedy="Take one target at a time.")
    runs = _arrays(kept, view, meaning)
    varied = [name for name in sorted(runs.names) if len(runs.names[name]) > 1]
    least = math.ceil(len(varied) / level)
    if permutations < least:
        raise InputError(f"{permutations} cannot reach {level}", field="permutations", remedy=f"Give at least {least}.")
    common = most_common(runs.codes, runs.prompts)
    factors = []
    for number, name in enumerate(sorted(runs.names)):
        rates = _level_rates(runs, name, confidence)
        held = runs.held(name)
        if name not in varied:
            factors.append(Factor(name, "not varied", rates))
        elif not _comparable(runs.strata(held), runs.levels[name]):
            along = [f for f in held if _comparable(runs.strata([h for h in held if h != f]), runs.levels[name])]
            factors.append(Factor(name, "not separable", rates, confounded=tuple(along)))
        else:
            rng = np.random.default_rng([seed, number])
            p = association(
                runs.codes,
                runs.prompts,
                common,
                runs.levels[name],
                runs.strata(held),
                rng=rng,
                permutations=permutations,
            )
            shown = Exercise(True, "told by the target") if name == FINGERPRINT else exercised(name, kept)
            factors.append(Factor(name, "no effect seen", rates, p=p, exercise=shown))
    adjusted = iter(holm([f.p for f in factors if f.p is not None]))
    decided = tuple(f if f.p is None else _decide(f, next(adjusted), level) for f in factors)
    pairs, differing = _within(runs.codes, runs.strata(runs.controlled))
    return Attribution(view, decided, pairs, differing, level, permutations)


@dataclass(frozen=True)
class _Runs:
    """The comparable runs as arrays, (n,): class, prompt, for each factor its level. No class is of two prompts."""

    codes: NDArray[np.int64]
    prompts: NDArray[np.int64]
    levels: Mapping[str, NDArray[np.int64]]
    names: Mapping[str, tuple[str, ...]]

    @property
    def controlled(self) -> list[str]:
        """The factors that the experiment sets."""
        return [f for f in self.names if f != FINGERPRINT]

    def held(self, name: str) -> list[str]:
        """The factors that are held fixed in the test of this one."""
        if name == FINGERPRINT:
            return [f for f in self.controlled if f != "time"]
        return [f for f in self.controlled if f != name] + [FINGERPRINT] * (name == "time")

    def strata(self, factors: Sequence[str]) -> NDArray[np.int64]:
        """A number for each combination of prompt and levels of these factors."""
        columns = np.stack([self.prompts, *(self.levels[f] for f in factors)])
        return np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _arrays(observations: Sequence[Observation], view: View, meaning: Meaning) -> _Runs:
    kept: list[Observation] = []
    codes: list[int] = []
    prompts: list[int] = []
    offset = 0
    for number, runs in enumerate(by_prompt(observations).values()):
        # Classes are numbered in order of content, which neither the order of the observations nor a level can move.
        ordered = sorted(runs, key=_content)
        own = classify(ordered, view, meaning)
        if view in READ_OUT and np.any(own >= 0):
            own[own == WITHOUT] = own.max() + 1  # nothing to read out is an answer of its own kind here
        for o, code in zip(ordered, own, strict=True):
            if code not in (FAILED, WITHOUT):
                kept.append(o)
                codes.append(offset + int(code))
                prompts.append(number)
        offset += max(0, int(own.max()) + 1)
    if not kept:
        raise InputError(f"no run can be compared in view {view}", field="observations", remedy="Take another view.")
    factors = sorted({factor for o in kept for factor, _ in o.condition if factor != "seed"})
    values = {name: [o.level(name) or "not set" for o in kept] for name in factors}
    values[FINGERPRINT] = [o.fingerprint or "not told" for o in kept]
    names = {name: tuple(sorted(set(column), key=level_order)) for name, column in values.items()}
    places = {name: {level: i for i, level in enumerate(levels)} for name, levels in names.items()}
    return _Runs(
        codes=np.array(codes, np.int64),
        prompts=np.array(prompts, np.int64),
        levels={name: np.array([places[name][x] for x in column], np.int64) for name, column in values.items()},
        names=names,
    )


def _content(o: Observation) -> tuple[object, ...]:
    return (o.text or "", o.token_ids or (), o.logprobs or (), o.parsed or "", o.answer or "", o.body or "")


def _level_rates(runs: _Runs, name: str, confidence: float) -> tuple[LevelRate, ...]:
    first = runs.levels[name] == 0
    departs = ~np.isin(runs.codes, most_common(runs.codes[first], runs.prompts[first]))
    known = np.isin(runs.prompts, runs.prompts[first])
    rates = []
    for i, level in enumerate(runs.names[name]):
        here = known & (runs.levels[name] == i)
        count, departures = int(here.sum()), int(departs[here].sum())
        if count:
            rates.append(LevelRate(level, count, departures, rate_interval(departures, count, confidence)))
    return tuple(rates)


def _comparable(strata: NDArray[np.int64], levels: NDArray[np.int64]) -> bool:
    """Whether some stratum has runs at two levels."""
    pairs = np.unique(np.stack([strata, levels]), axis=1)[0]
    return len(pairs) > len(np.unique(pairs))


def _within(codes: NDArray[np.int64], cells: NDArray[np.int64]) -> tuple[int, int]:
    """Pairs of runs of the same cell, and those of them that differ."""
    sizes = np.bincount(cells)
    _, same = np.unique(np.stack([cells, codes]), axis=1, return_counts=True)
    pairs, equal = (sum(math.comb(int(n), 2) for n in counts) for counts in (sizes, same))
    return pairs, pairs - equal


def _decide(factor: Factor, adjusted: float, level: float) -> Factor:
    assert factor.exercise is not None
    if adjusted <= level:
        return replace(factor, adjusted=adjusted, status="moves the bits")
    return replace(factor, adjusted=adjusted, status="no effect seen" if factor.exercise.shown else "not exercised")
