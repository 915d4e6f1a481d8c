"""Two sides: no alarm without a difference, none for one that does not matter, one for one that does."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from scipy.stats import binomtest

from samebits.audit.compare import Comparison, compare, fewest_flips
from samebits.audit.observation import Observation, as_condition
from samebits.errors import InputError

Answers = dict[str, list[str]]


def side(answers: Answers, target: str = "t", **fields: object) -> list[Observation]:
    return [
        Observation(target=target, prompt_id=p, run=i, text=text, **fields)  # type: ignore[arg-type]
        for p, texts in answers.items()
        for i, text in enumerate(texts)
    ]


def sampled(seed: int, share: float = 0.0, prompts: int = 6, runs: int = 10) -> list[Observation]:
    rng = random.Random(seed)
    return side(
        {
            f"p{p}": ["".join(rng.choices("xyz" if rng.random() < share else "abcd", k=6)) for _ in range(runs)]
            for p in range(prompts)
        }
    )


def judged(right: Iterable[Iterable[bool]], target: str = "t") -> list[Observation]:
    """Items with a run for each entry: correct or not."""
    return [
        Observation(target=target, prompt_id=f"p{p:03d}", run=i, text="same", answer="A" if r else "B", correct=r)
        for p, runs in enumerate(right)
        for i, r in enumerate(runs)
    ]


def quick(first: list[Observation], second: list[Observation], seed: int = 0, **options: object) -> Comparison:
    return compare(first, second, seed=seed, permutations=399, power_simulations=0, **options)  # type: ignore[arg-type]


def test_no_alarm_without_a_difference() -> None:
    """At level 0.05, 5 of 100 comparisons are expected at most; 12 is three standard errors above."""
    found = [quick(sampled(2 * s), sampled(2 * s + 1), s) for s in range(100)]
    assert sum(c.different for c in found) <= 12
    assert all(c.mismatches == 0 for c in found)


@pytest.mark.proof
def test_no_alarm_without_a_difference_a_thousand_times() -> None:
    found = [quick(sampled(2 * s), sampled(2 * s + 1), s) for s in range(1000)]
    assert sum(c.different for c in found) <= 71


def test_a_shift_is_seen() -> None:
    found = [quick(sampled(2 * s), sampled(2 * s + 1, 0.4), s) for s in range(20)]
    assert sum(c.answers == "different" for c in found) >= 19


def test_replayed_canaries_never_alarm_at_the_baseline() -> None:
    """Bit-exact answers are compared by count: nothing to be decided by chance, on any of 200 days."""
    day = side({f"p{i}": [f"answer {i}"] * 3 for i in range(20)})
    assert not any(quick(day, day, seed).different for seed in range(200))
    changed = [*day[:-3], *side({"p19": ["answer 20"] * 3})]
    found = quick(day, changed)
    assert (found.mismatches, found.constant) == (1, 20)
    assert found.different


def test_prompts_that_vary_do_not_alarm_by_looking_constant() -> None:
    """Two runs of a coin flip look constant every other time; at level 0.05, 5 of 100 alarms are expected at most."""

    def flips(seed: int) -> list[Observation]:
        rng = random.Random(seed)
        return side({f"p{p}": rng.choices(["yes", "no"], k=2) for p in range(26)})

    found = [quick(flips(2 * s), flips(2 * s + 1), s) for s in range(100)]
    assert sum(c.mismatches > 0 for c in found) > 50  # negative control: counted alone, these were the alarms
    assert sum(c.different for c in found) <= 12


def test_a_mismatch_beyond_luck_counts_beside_prompts_that_vary() -> None:
    varying = {f"v{i}": ["a", "b"] * 4 for i in range(9)}
    few, many = ({"p": ["x"] * n} | varying for n in (2, 8))
    for first, different in ((few, False), (many, True)):
        found = quick(side(first), side(first | {"p": ["y"] * len(first["p"])}))
        assert (found.mismatches, found.beyond_luck, found.different) == (1, different, different)


def test_a_prompt_without_a_seed_may_vary_and_says_nothing_about_those_with_one() -> None:
    fixed, free = (as_condition({"seed": level}) for level in ("fixed", "none"))
    loose = side({"p": ["a", "b", "c"]}, condition=free)
    found = quick(
        [*side({"p": ["a"] * 3}, condition=fixed), *loose], [*side({"p": ["b"] * 3}, condition=fixed), *loose]
    )
    assert found.beyond_luck


def test_one_run_a_side_is_no_mismatch() -> None:
    found = quick(side({"p": ["a"]}), side({"p": ["b"]}))
    assert (found.answers, found.mismatches, found.mmd) == ("too few runs", 0, None)
    assert not found.different


def test_a_significant_difference_below_the_floor_is_no_alarm() -> None:
    first = side({"p": ["aaaaaaaaaa"] * 1000})
    second = side({"p": ["aaaaaaaaaa"] * 985 + ["bbbbbbbbbb"] * 15})
    found = quick(first, second)
    assert found.mmd is not None
    assert found.mmd.p <= 0.01
    assert found.mmd.shift == pytest.approx(0.015, abs=0.001)
    assert found.answers == "below the floor"
    assert not found.different
    assert quick(first, first).answers == "no difference seen"
    # Negative control: the floor is what holds it back.
    assert quick(first, second, floor=0.01).answers == "different"


def test_equal_data_give_equal_verdicts() -> None:
    first, second = sampled(1), sampled(2, 0.2)
    found = [compare(first, second, seed=3, permutations=399, power_simulations=5) for _ in range(10)]
    assert all(c == found[0] for c in found)
    shuffled = random.Random(0).sample(first, len(first)), random.Random(1).sample(second, len(second))
    assert compare(*shuffled, seed=3, permutations=399, power_simulations=5) == found[0]


def test_prompts_are_corrected_together_and_the_moved_one_is_named() -> None:
    first = sampled(1, prompts=20)
    moved = sampled(3, 1.0, prompts=1)
    second = [*moved, *(o for o in sampled(2, prompts=20) if o.prompt_id != "p0")]
    found = quick(first, second)
    named = [p.prompt_id for p in found.prompts if p.adjusted is not None and p.adjusted <= 0.1]
    assert named == ["p0"]
    assert all(p.adjusted >= p.p for p in found.prompts if p.p is not None and p.adjusted is not None)


def test_prompts_of_one_side_are_told() -> None:
    found = quick(side({"a": ["x", "x"], "b": ["y", "y"]}), side({"b": ["y", "y"], "c": ["z", "z"]}))
    assert (found.only_first, found.only_second) == (("a",), ("c",))
    assert [p.prompt_id for p in found.prompts] == ["b"]
    with pytest.raises(InputError, match="no prompt in common"):
        quick(side({"a": ["x"]}), side({"c": ["x"]}))


def test_runs_with_and_without_a_seed_are_not_mixed() -> None:
    fixed, free = (as_condition({"seed": level}) for level in ("fixed", "none"))
    first = [*side({"p": ["a"] * 4}, condition=fixed), *side({"p": ["b", "c", "d", "e"]}, condition=free)]
    second = [*side({"p": ["a"] * 4}, condition=fixed), *side({"p": ["c", "b", "e", "d"]}, condition=free)]
    found = quick(first, second)
    assert [(p.seed, p.constant) for p in found.prompts] == [("fixed", True), ("none", False)]
    assert not found.different


# ---- accuracy --------------------------------------------------------------------------------------------------------


def test_mcnemar_by_hand() -> None:
    first = judged([[True] * 3] * 10 + [[False] * 3] * 10)
    second = judged([[True] * 3] * 2 + [[False] * 3] * 18)
    flips = quick(first, second).flips
    assert flips is not None
    assert (flips.items, flips.first_only, flips.second_only) == (20, 8, 0)
    assert flips.p == pytest.approx(2 * 0.5**8)
    assert flips.difference == pytest.approx(-0.4)
    assert flips.run_spread == 0.0
    assert flips.verdict == "different"


def test_no_flip_is_no_difference() -> None:
    flips = quick(judged([[True] * 2] * 5), judged([[True] * 2] * 5)).flips
    assert flips is not None
    assert (flips.p, flips.verdict) == (1.0, "no difference seen")


def test_level_of_mcnemar_under_the_null() -> None:
    rng = random.Random(2)
    alarms = 0
    for _ in range(1000):
        flips = [rng.random() < 0.5 for _ in range(rng.randint(5, 40))]
        alarms += binomtest(sum(flips), len(flips), 0.5).pvalue <= 0.05
    assert alarms <= 71


def test_a_difference_within_the_spread_of_runs_is_neither_improvement_nor_drift() -> None:
    """The first side wanders by 30 points from pass to pass; so a difference of 10 in the mean says nothing."""
    first = judged([[True, True]] * 50 + [[True, False]] * 30 + [[False, False]] * 20)
    second = judged([[True, True]] * 50 + [[False, False]] * 30 + [[True, True]] * 20)
    flips = quick(first, second).flips
    assert flips is not None
    assert flips.run_spread is not None
    assert abs(flips.difference) <= flips.run_spread
    assert flips.p < 0.05
    assert flips.verdict == "below the floor"


def test_one_pass_has_no_spread_to_compare_with() -> None:
    flips = quick(judged([[True]] * 20), judged([[False]] * 20)).flips
    assert flips is not None
    assert flips.p < 0.001
    assert flips.verdict == "too few runs"


def test_flips_that_are_enough() -> None:
    assert fewest_flips(0.05) == 6
    assert binomtest(0, 6, 0.5).pvalue <= 0.05 < binomtest(0, 5, 0.5).pvalue
    assert fewest_flips(0.01) == 8


# ---- what is compared ------------------------------------------------------------------------------------------------


def test_token_ids_and_prefixes() -> None:
    one = side({"p": ["ab", "ab"]}, token_ids=(1, 2))
    other = side({"p": ["ab", "ab"]}, token_ids=(1, 3))
    assert quick(one, other).mismatches == 0
    assert quick(one, other, unit="token ids").mismatches == 1
    with pytest.raises(InputError, match="tells no token ids"):
        quick(one, side({"p": ["ab", "ab"]}), unit="token ids")


def test_smallest_shift_that_would_have_been_seen() -> None:
    few = compare(sampled(1, prompts=2, runs=4), sampled(2, prompts=2, runs=4), seed=0, power_simulations=40)
    many = compare(sampled(1, prompts=6, runs=20), sampled(2, prompts=6, runs=20), seed=0, power_simulations=40)
    assert many.smallest_shift is not None
    assert many.smallest_shift <= 0.2
    assert few.smallest_shift is None or few.smallest_shift > many.smallest_shift


def test_levels_and_sides_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="level"):
        quick(sampled(1), sampled(2), level=0.0)
    with pytest.raises(InputError, match="floor"):
        quick(sampled(1), sampled(2), floor=1.0)
    with pytest.raises(InputError, match="one target a side"):
        quick([*sampled(1), *side({"p": ["a"]}, target="u")], sampled(2))


def test_an_outage_is_no_loss_of_accuracy() -> None:
    first = judged([[True] * 3] * 20)
    outage = [Observation(target="t", prompt_id=o.prompt_id, run=o.run, error="HTTP 503") for o in first if o.run]
    found = quick(first, [*(o for o in first if o.run == 0), *outage])
    assert found.flips is not None
    assert (found.flips.second_only, found.flips.first_only, found.flips.difference) == (0, 0, 0)
    assert not found.different
    # Negative control: wrong answers in place of none.
    assert quick(first, judged([[True, False, False]] * 20)).flips != found.flips
