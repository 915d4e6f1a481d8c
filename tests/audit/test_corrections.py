"""Corrections for many tests hold the stated level."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.audit.corrections import benjamini_hochberg, holm
from samebits.errors import InputError


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert holm([0.5, 0.9]) == (1.0, 1.0)
    assert holm([]) == ()


def test_benjamini_hochberg_by_hand() -> None:
    assert benjamini_hochberg([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.04, 0.04))
    assert benjamini_hochberg([]) == ()


def test_family_wise_level_over_null_simulations() -> None:
    pvalues = np.random.default_rng(7).random((1000, 50))
    alarms = sum(min(holm(p)) <= 0.05 for p in pvalues)
    naive = sum(p.min() <= 0.05 for p in pvalues)
    assert alarms <= 71  # 50 expected; 71 is three standard errors above
    assert naive > 850  # negative control: uncorrected, 92 % of the days alarm


def test_false_discoveries_stay_below_their_share() -> None:
    rng = np.random.default_rng(8)
    shares = []
    for _ in range(500):
        pvalues = np.concatenate([rng.random(40), rng.random(10) * 1e-4])
        found = np.array(benjamini_hochberg(pvalues)) <= 0.05
        assert found[40:].sum() == 10
        shares.append(found[:40].sum() / found.sum())
    assert np.mean(shares) < 0.05


def test_what_is_no_probability_is_refused() -> None:
    for call in (holm, benjamini_hochberg):
        with pytest.raises(InputError, match="pvalues"):
            call([0.5, float("nan")])
        with pytest.raises(InputError, match="pvalues"):
            call([-0.1])
