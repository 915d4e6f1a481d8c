"""Log-probabilities are compared where the context is the same, and nowhere else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.audit.observation import Observation
from samebits.audit.scores import lower_kl, score_spread


def run(ids: tuple[int, ...], scores: tuple[float, ...], best: tuple[tuple[tuple[str, float], ...], ...] | None = None):  # type: ignore[no-untyped-def]
    return Observation(
        target="t", prompt_id="p", run=0, text=str(ids), token_ids=ids, logprobs=scores, top_logprobs=best
    )


def test_spread_only_over_shared_tokens() -> None:
    found = score_spread([run((1, 2, 3), (-1, -2, -3)), run((1, 2, 3), (-1, -2.5, -3)), run((1, 9), (-1.25, -50))])
    assert found is not None
    assert found.spread == (0.25, 0.5, 0.0)
    assert found.compared == (3, 2, 2)
    assert found.largest == 0.5
    assert found.variants == 3
    assert found.mean_difference == pytest.approx((0 + 0.5 + 0 + 0.25) / 4)


def test_negative_control_equal_runs_have_no_spread() -> None:
    found = score_spread([run((1, 2), (-1.0, -2.0))] * 5)
    assert found is not None
    assert (found.largest, found.variants, found.mean_difference) == (0.0, 1, 0.0)
    one_bit = score_spread([run((1,), (-1.0,)), run((1,), (math.nextafter(-1.0, 0),))])
    assert one_bit is not None
    assert one_bit.variants == 2
    assert one_bit.largest > 0


def test_infinities_are_equal_to_themselves() -> None:
    found = score_spread([run((1,), (-math.inf,)), run((1,), (-math.inf,)), run((1,), (-1.0,))])
    assert found is not None
    assert found.largest == math.inf
    same = score_spread([run((1,), (-math.inf,))] * 2)
    assert same is not None
    assert same.largest == 0.0


def test_nothing_to_compare() -> None:
    bare = Observation(target="t", prompt_id="p", run=0, text="a")
    assert score_spread([bare, run((1,), (-1.0,))]) is None
    assert score_spread([]) is None


def as_scores(weights: list[float], names: str = "abcdefgh") -> tuple[tuple[str, float], ...]:
    total = sum(weights)
    return tuple((n, math.log(w / total)) for n, w in zip(names, weights, strict=False))


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=8), st.lists(st.floats(0.01, 1), min_size=8, max_size=8))
def test_kl_of_the_best_tokens_is_a_lower_bound(one: list[float], two: list[float]) -> None:
    p, q = as_scores(one), as_scores(two[: len(one)])
    full = sum(math.exp(a) * (a - b) for (_, a), (_, b) in zip(p, q, strict=True))
    assert lower_kl(p, q) == pytest.approx(full, abs=1e-4)
    offered = sorted(p, key=lambda x: -x[1])[:2], sorted(q, key=lambda x: -x[1])[:2]
    assert -1e-9 <= lower_kl(tuple(offered[0]), tuple(offered[1])) <= full + 1e-5


def test_kl_by_hand_and_of_equal_scores() -> None:
    p, q = (("a", math.log(0.5)), ("b", math.log(0.5))), (("a", math.log(0.25)), ("b", math.log(0.75)))
    assert lower_kl(p, q) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), abs=1e-5)
    assert lower_kl(p, p) == 0.0
    assert lower_kl((("a", 0.0),), (("a", -math.inf),)) == math.inf


def test_kl_counts_the_place_at_which_the_tokens_part() -> None:
    p, q = (("a", math.log(0.6)), ("b", math.log(0.4))), (("b", math.log(0.6)), ("a", math.log(0.4)))
    found = score_spread([run((1, 2), (-1, -1), (p, p)), run((1, 2), (-1, -1), (p, p)), run((1, 3), (-1, -1), (p, q))])
    assert found is not None
    assert found.kl == pytest.approx((0.0, lower_kl(p, q) / 2))
    assert set(found.spread) == {0}
