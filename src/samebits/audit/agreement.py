"""Runs counted by equality: unique answers, the common one, pairs that repeat, prompts on which all runs agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from samebits.audit.intervals import (
    CONFIDENCE,
    Estimate,
    Interval,
    ShareEstimate,
    departure_interval,
    mean_interval,
    rate_interval,
    unseen_departures,
)
from samebits.audit.observation import Observation
from samebits.audit.ranges import Count, Share
from samebits.audit.views import FAILED, SAME_WORDS, VIEWS, WITHOUT, Meaning, View, by_prompt, classify

# Views that are read out of the answer: an answer from which nothing could be read agrees with no other.
READ_OUT: Final[frozenset[View]] = frozenset({"parsed", "answer"})

Verdict = Literal["equal", "different", "unreadable", "too few runs", "not offered"]


@dataclass(frozen=True)
class Agreement:
    """The runs of one prompt in one view.

    Attributes:
        prompt_id: which prompt.
        failed: runs without an answer.
        without: answered runs without a value in this view. Where the value is read out of the answer they are
            compared, and each differs from all others; otherwise they are left out.
        compared: answered runs that are compared.
        unique: different answers among these.
        outcomes: different values among them; that nothing could be read is one more, however often.
        modal: runs with the most common answer.
        equal_pairs: pairs of compared runs that are equal.
    """

    prompt_id: str
    failed: Count
    without: Count
    compared: Count
    unique: Count
    outcomes: Count
    modal: Count
    equal_pairs: Count

    @property
    def departures(self) -> int:
        """Compared runs that do not have the most common answer."""
        return self.compared - self.modal

    @property
    def modal_share(self) -> Fraction | None:
        """Share of the compared runs that have the most common answer."""
        return Fraction(self.modal, self.compared) if self.compared else None

    @property
    def repeat_rate(self) -> Fraction | None:
        """Share of all pairs of runs that are equal; a pair with a failed run is not."""
        return self._share(self.compared + self.failed)

    @property
    def repeat_rate_answered(self) -> Fraction | None:
        """Share of the pairs of compared runs that are equal."""
        return self._share(self.compared)

    @property
    def total(self) -> bool:
        """Whether there are at least two runs, and each answered, with a value, and the same one (TAR)."""
        return self.failed == 0 and self.without == 0 and self.unique == 1 and self.compared > 1

    def _share(self, runs: int) -> Fraction | None:
        return Fraction(self.equal_pairs, math.comb(runs, 2)) if runs > 1 else None


@dataclass(frozen=True)
class ViewSummary:
    """All prompts of a target in one view. Means are over prompts, each with the same weight.

    Attributes:
        view: which.
        verdict: ``different`` when two runs of a prompt have different outcomes; ``unreadable`` when none do, but
            nothing could be read out of any run of some prompt; ``equal`` when none do and some prompt has two; a
            failed run is no difference, see `failed`.
        prompts: one for each prompt to which the view applies, in order of ids.
        runs_least, runs_most: runs of a prompt; N of TAR@N is the least.
        compared, failed, without, departures: sums over prompts.
        departure_rate: departures among compared runs, these prompts. Near one half it is too low, by about 0.4/√n with
            n runs a prompt, as the common answer is known from the same runs only; `repeat` has no such error.
        excluded: where the verdict is ``equal``: the rate of departures that is excluded.
        repeat: mean `Agreement.repeat_rate`.
        repeat_answered: mean `Agreement.repeat_rate_answered`.
        total_agreement: share of prompts with `Agreement.total`: TARr@N of the text, TARa@N of the answer.
        unique: mean number of different answers.
        modal_share: mean share of the common answer.
    """

    view: View
    verdict: Verdict
    prompts: tuple[Agreement, ...]
    runs_least: Count
    runs_most: Count
    compared: Count
    failed: Count
    without: Count
    departures: Count
    departure_rate: ShareEstimate
    excluded: Share | None
    repeat: ShareEstimate
    repeat_answered: ShareEstimate
    total_agreement: ShareEstimate
    unique: Estimate
    modal_share: ShareEstimate


def agreement(observations: Sequence[Observation], view: View, meaning: Meaning = SAME_WORDS) -> Agreement:
    """Compare the runs of one prompt."""
    codes = classify(observations, view, meaning)
    failed, without = int(np.count_nonzero(codes == FAILED)), int(np.count_nonzero(codes == WITHOUT))
    _, counts = np.unique(codes[codes >= 0], return_counts=True)
    alone = without if view in READ_OUT else 0
    compared = int(counts.sum()) + alone
    return Agreement(
        prompt_id=observations[0].prompt_id,
        failed=failed,
        without=without,
        compared=compared,
        unique=len(counts) + alone,
        outcomes=len(counts) + min(alone, 1),
        modal=max(int(counts.max(initial=0)), min(alone, 1)),
        equal_pairs=sum(math.comb(int(n), 2) for n in counts),
    )


def summarise(
    observations: Sequence[Observation],
    view: View,
    *,
    meaning: Meaning = SAME_WORDS,
    confidence: float = CONFIDENCE,
) -> ViewSummary:
    """Compare the runs of every prompt of one target in one view.

    A prompt on which all runs failed counts, and does not agree. One whose answers have nothing to read out, and expect
    nothing, does not count in that view. Equal observations and seeds give equal results.
    """
    everything = by_prompt(observations)
    prompts = tuple(agreement(runs, view, meaning) for runs in everything.values() if _applies(runs, view))
    offered = any(p.compared > 0 for p in prompts)
    prompts = prompts if offered else ()
    sizes = [p.compared + p.failed for p in prompts]
    departures, compared = sum(p.departures for p in prompts), sum(p.compared for p in prompts)
    verdict = _verdict(view, prompts)
    repeated = [p.compared for p in prompts if p.compared > 1]
    agreeing = sum(p.total for p in prompts)
    excluded = unseen_departures(repeated, confidence) if verdict == "equal" else None
    # Means over prompts give a prompt with few runs the weight of one with many, so that the least count decides; one
    # with a single run shows nothing.
    by_prompts = None
    if excluded is not None and all(p.compared > 1 for p in prompts):
        by_prompts = unseen_departures([min(repeated)] * len(repeated), confidence)
    return ViewSummary(
        view=view,
        verdict=verdict,
        prompts=prompts,
        runs_least=min(sizes, default=0),
        runs_most=max(sizes, default=0),
        compared=compared,
        failed=sum(p.failed for p in prompts),
        without=sum(p.without for p in prompts),
        departures=departures,
        departure_rate=Estimate(
            departures / sum(repeated) if repeated else None,
            departure_interval(departures, repeated, confidence) if repeated else None,
            sum(repeated),
            "runs",
        ),
        excluded=excluded,
        repeat=_mean([p.repeat_rate for p in prompts], _repeats_at_least(by_prompts), confidence),
        repeat_answered=_mean([p.repeat_rate_answered for p in prompts], _repeats_at_least(by_prompts), confidence),
        total_agreement=Estimate(
            agreeing / len(prompts) if prompts else None,
            rate_interval(agreeing, len(prompts), confidence) if prompts else None,
            len(prompts),
            "prompts",
        ),
        unique=_mean_unique(prompts, confidence),
        modal_share=_mean([p.modal_share for p in prompts], None if by_prompts is None else 1 - by_prompts, confidence),
    )


def summarise_all(
    observations: Sequence[Observation],
    *,
    meaning: Meaning = SAME_WORDS,
    confidence: float = CONFIDENCE,
) -> tuple[ViewSummary, ...]:
    """`summarise` for each of VIEWS."""
    return tuple(summarise(observations, view, meaning=meaning, confidence=confidence) for view in VIEWS)


def _mean(values: Sequence[Fraction | None], low_if_all_one: float | None, confidence: float) -> Estimate:
    """Mean of shares over prompts; where all are 1, the interval is what the number of runs excludes.

    The mean is exact, and rounded once: in doubles that of 18 prompts with 0.9 each would be below 0.9.
    """
    known = [v for v in values if v is not None]
    if not known:
        return Estimate(None, None, 0, "prompts")
    interval = mean_interval(np.array(known, np.float64), confidence=confidence)
    if interval is None and low_if_all_one is not None and all(v == 1 for v in known):
        interval = Interval(low_if_all_one, 1.0, confidence, "rule of three")
    return Estimate(float(sum(known) / len(known)), interval, len(known), "prompts")


def _mean_unique(prompts: Sequence[Agreement], confidence: float) -> Estimate:
    """Mean number of different answers, of which a prompt has one to as many as it has runs."""
    known = np.array([p.unique for p in prompts if p.compared], np.float64)
    if not known.size:
        return Estimate(None, None, 0, "prompts")
    most = max(p.compared for p in prompts)
    return Estimate(
        float(known.mean()), mean_interval(known, low=1, high=most, confidence=confidence), len(known), "prompts"
    )


def _applies(runs: Sequence[Observation], view: View) -> bool:
    answered = [o for o in runs if o.text is not None]
    if view == "parsed":
        return not answered or any(o.parsed is not None for o in answered)
    if view == "answer":
        return not answered or any(o.answer is not None or o.correct is not None for o in answered)
    return True


def _verdict(view: View, prompts: Sequence[Agreement]) -> Verdict:
    if not prompts:
        return "not offered"
    if any(p.outcomes > 1 for p in prompts):
        return "different"
    if view in READ_OUT and any(p.without for p in prompts):
        return "unreadable"
    return "equal" if any(p.compared > 1 for p in prompts) else "too few runs"


def _repeats_at_least(excluded: float | None) -> float | None:
    """A pair repeats with probability of at least (1 − u)² where a run departs with probability u."""
    return None if excluded is None else (1 - excluded) ** 2
