"""Two targets, or one target at two dates: is there a difference, and is it large enough to matter?

A p-value alone is no alarm. With enough runs everything is significant, and with enough tests something always is. So a
difference must pass a correction for all tests made here, and must be at least as large as a floor.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from scipy.stats import binomtest

from samebits.audit.accuracy import Accuracy, accuracy
from samebits.audit.corrections import benjamini_hochberg
from samebits.audit.mmd import PERMUTATIONS, PREFIX, Answer, MmdTest, TwoSamples, mmd_test, power, two_samples
from samebits.audit.observation import Observation
from samebits.errors import InputError

LEVEL: Final = 0.05
# Shifts and differences in accuracy below 2 % of the runs are not called differences.
FLOOR: Final = 0.02
POWER: Final = 0.8
SHIFTS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

Unit = Literal["characters", "token ids"]
Verdict = Literal["different", "below the floor", "no difference seen", "too few runs"]


@dataclass(frozen=True)
class PromptShift:
    """One prompt on both sides; runs with and without a seed are compared apart.

    Attributes:
        prompt_id, seed: which; the level of the factor ``seed``, None where it is not set.
        runs: answered runs on the two sides.
        p, adjusted: of the test on this prompt, and after Benjamini and Hochberg's correction over prompts; None where
            a side has fewer than two runs.
        constant: whether each side has two runs or more, and gave one answer only.
        equal: whether both sides gave the same set of answers.
    """

    prompt_id: str
    seed: str | None
    runs: tuple[int, int]
    p: float | None
    adjusted: float | None
    constant: bool
    equal: bool


@dataclass(frozen=True)
class McNemar:
    """Items that are right on one side only; an item is right where more than half of its runs are.

    Attributes:
        items: items compared.
        first_only, second_only: items right on one side only.
        p: of the exact test, two-sided: 1 where no item flips.
        fewest: flips, all in one direction, that it takes to be significant at the level of the comparison.
        difference: mean accuracy of the second side minus that of the first.
        run_spread: the larger of the two sides' spreads from pass to pass; None where a side has one pass only.
        verdict: ``different`` only where the difference is also larger than the spread from run to run.
    """

    items: int
    first_only: int
    second_only: int
    p: float
    fewest: int
    difference: float
    run_spread: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """What two sides have in common and what not.

    Attributes:
        targets: names of the two sides.
        unit, prefix: what the kernel counts, and how much of an answer it looks at.
        prompts: one for each prompt of both sides, in order of ids.
        only_first, only_second: prompts of one side only; not compared.
        mmd: the model-equality test over all prompts with two runs on both sides; None where there are none.
        answers: its verdict.
        flips: None where no common prompt expects an answer.
        mismatches: prompts on which each side always gave one answer, but not the same.
        beyond_luck: whether these are a difference, see `_beyond_luck`.
        constant: prompts on which each side always gave one answer.
        adjusted: p-values of the tests made, corrected together: ``answers``, ``flips``.
        smallest_shift: the smallest of SHIFTS that the test would have seen with 80 % chance, by simulation; None where
            that was not simulated, or even a shift of all runs would have been missed.
        level, floor: of the verdicts.
    """

    targets: tuple[str, str]
    unit: Unit
    prefix: int
    prompts: tuple[PromptShift, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    mmd: MmdTest | None
    answers: Verdict
    flips: McNemar | None
    mismatches: int
    beyond_luck: bool
    constant: int
    adjusted: Mapping[str, float]
    smallest_shift: float | None
    level: float
    floor: float

    @property
    def different(self) -> bool:
        """Whether any verdict says so, or a replayed answer does not match."""
        return "different" in (self.answers, self.flips.verdict if self.flips else None) or self.beyond_luck


def compare(
    first: Sequence[Observation],
    second: Sequence[Observation],
    *,
    seed: int,
    unit: Unit = "characters",
    prefix: int = PREFIX,
    level: float = LEVEL,
    floor: float = FLOOR,
    permutations: int = PERMUTATIONS,
    power_simulations: int = 100,
) -> Comparison:
    """Compare two sides on the prompts that both have. Equal observations and seeds give equal results.

    Args:
        first, second: of one target each, the earlier or trusted one first.
        seed: of permutations and simulations.
        unit: ``token ids`` only makes sense for one tokenizer; all runs must have them.
        power_simulations: for each of SHIFTS, until one is seen; 0 leaves power out.

    Raises:
        InputError: no common prompt, several targets on a side, runs without token ids, or a value out of range.
    """
    for name, value in (("level", level), ("floor", floor)):
        if not 0 < value < 1:
            raise InputError(f"{value} is out of range", field=name, remedy="Give more than 0, less than 1.")
    sides = (_answers(first, unit), _answers(second, unit))
    common = sorted(sides[0].keys() & sides[1].keys(), key=lambda key: (key[0], key[1] or ""))
    if not common:
        raise InputError("the two sides have no prompt in common", field="observations", remedy="Ask both the same.")
    pairs = [(sides[0][key], sides[1][key]) for key in common]
    tested = [i for i, (a, b) in enumerate(pairs) if min(len(a), len(b)) > 1]
    samples = [two_samples(*pairs[i], prefix) for i in tested]
    mmd = mmd_test(samples, seed=seed, permutations=permutations) if samples else None
    own = dict(zip(tested, mmd.prompt_p, strict=True)) if mmd else {}
    corrected = dict(zip(tested, benjamini_hochberg(list(own.values())), strict=True))
    prompts = tuple(
        PromptShift(
            *key,
            runs=(len(a), len(b)),
            p=own.get(i),
            adjusted=corrected.get(i),
            constant=i in own and len(set(a)) == len(set(b)) == 1,
            equal=set(a) == set(b),
        )
        for i, (key, (a, b)) in enumerate(zip(common, pairs, strict=True))
    )
    counts = _paired(first, second)
    p = {"answers": mmd.p} if mmd else {}
    p |= {"flips": counts.p} if counts else {}
    adjusted = dict(zip(p, benjamini_hochberg(list(p.values())), strict=True))
    return Comparison(
        targets=(first[0].target, second[0].target),
        unit=unit,
        prefix=prefix,
        prompts=prompts,
        only_first=tuple(sorted({k[0] for k in sides[0].keys() - sides[1].keys()})),
        only_second=tuple(sorted({k[0] for k in sides[1].keys() - sides[0].keys()})),
        mmd=mmd,
        answers=_verdict(adjusted["answers"], mmd.shift, level, floor) if mmd else "too few runs",
        flips=counts.decided(adjusted["flips"], level, floor) if counts else None,
        mismatches=sum(x.constant and not x.equal for x in prompts),
        beyond_luck=_beyond_luck(prompts, level),
        constant=sum(x.constant for x in prompts),
        adjusted=adjusted,
        smallest_shift=smallest_shift(samples, seed=seed, level=level, simulations=power_simulations),
        level=level,
        floor=floor,
    )


def smallest_shift(samples: Sequence[TwoSamples], *, seed: int, level: float, simulations: int) -> float | None:
    """The smallest of SHIFTS that `mmd_test` sees with a chance of POWER; None: none, or no simulations."""
    if not samples or simulations < 1:
        return None
    return next(
        (s for s in SHIFTS if power(samples, s, seed=seed, level=level, simulations=simulations) >= POWER), None
    )


def fewest_flips(level: float) -> int:
    """Flips, all in one direction, that make McNemar's exact test significant: 2·0.5ⁿ ≤ level."""
    return max(1, math.ceil(math.log2(2 / level)))


@dataclass(frozen=True)
class _Counts:
    items: int
    first_only: int
    second_only: int
    difference: float
    run_spread: float | None

    @property
    def p(self) -> float:
        flips = self.first_only + self.second_only
        return float(binomtest(self.first_only, flips, 0.5).pvalue) if flips else 1.0

    def decided(self, adjusted: float, level: float, floor: float) -> McNemar:
        verdict = _verdict(adjusted, abs(self.difference), level, floor)
        # A difference that repetition alone produces is neither improvement nor drift.
        if verdict == "different" and (self.run_spread is None or abs(self.difference) <= self.run_spread):
            verdict = "too few runs" if self.run_spread is None else "below the floor"
        return McNemar(
            self.items,
            self.first_only,
            self.second_only,
            self.p,
            fewest_flips(level),
            self.difference,
            self.run_spread,
            verdict,
        )


def _verdict(adjusted: float, effect: float, level: float, floor: float) -> Verdict:
    if adjusted > level:
        return "no difference seen"
    return "different" if effect >= floor else "below the floor"


def _beyond_luck(prompts: Sequence[PromptShift], level: float) -> bool:
    """Whether some prompt with one answer on each side, but not the same, is a difference.

    Where no prompt was seen to vary, answers are replayed, and each such prompt is one. Else it may vary, too: with n
    and m runs it then looks so with a chance of at most 2·max pⁿ(1 − p)ᵐ, which is held against the level by
    Bonferroni's correction. Prompts with and without a seed are judged apart, as the latter should vary.
    """
    tested = [x for x in prompts if x.p is not None]
    varying = {x.seed for x in tested if not x.constant}
    for x in tested:
        if x.constant and not x.equal:
            n, m = x.runs
            share = n / (n + m)
            if x.seed not in varying or 2 * share**n * (1 - share) ** m * len(tested) <= level:
                return True
    return False


_Key = tuple[str, str | None]


def _answers(observations: Sequence[Observation], unit: Unit) -> dict[_Key, list[Answer]]:
    if len({o.target for o in observations}) > 1:
        raise InputError("a side has several targets", field="observations", remedy="Give one target a side.")
    found: dict[_Key, list[Answer]] = defaultdict(list)
    for o in observations:
        if o.text is None:
            continue
        if unit == "token ids" and o.token_ids is None:
            raise InputError(f"{o.target} tells no token ids", field="unit", remedy="Compare characters.")
        answer = o.token_ids if unit == "token ids" and o.token_ids is not None else o.text
        found[o.prompt_id, o.level("seed")].append(answer)
    return dict(found)


def _paired(first: Sequence[Observation], second: Sequence[Observation]) -> _Counts | None:
    # An outage is no change of the model, so that runs without an answer are left out here as in the other tests.
    one, two = (accuracy([o for o in side if not o.failed]) for side in (first, second))
    if one is None or two is None:
        return None
    right, other = ({item.prompt_id: item.correct * 2 > item.runs for item in side.items} for side in (one, two))
    common = right.keys() & other.keys()
    if not common:
        return None
    return _Counts(
        items=len(common),
        first_only=sum(right[k] and not other[k] for k in common),
        second_only=sum(other[k] and not right[k] for k in common),
        difference=_mean(two, common) - _mean(one, common),
        run_spread=None if one.spread is None or two.spread is None else max(one.spread, two.spread),
    )


def _mean(side: Accuracy, items: set[str]) -> float:
    shares = [item.correct / item.runs for item in side.items if item.prompt_id in items]
    return sum(shares) / len(shares)
