"""Rotary frequencies against exact rationals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from samebits.errors import InputError
from samebits.models import RopeScaling, inverse_frequencies, load_source
from samebits.models.config import ModelConfig
from samebits.numerics.rope import rope_tables


def config(theta: float, dim: int, scaling: RopeScaling | None = None) -> ModelConfig:
    return ModelConfig("llama", 8, dim, 8, 1, 1, 1, dim, 64, 64, None, 1e-5, theta, scaling, tie_word_embeddings=True)


@pytest.mark.parametrize("theta", [10000.0, 100000.0, 500000.0, 1e6, 12345.678])
@pytest.mark.parametrize("dim", [4, 64, 80, 128])
def test_each_is_the_nearest_float(theta: float, dim: int) -> None:
    """f is nearest to θ^(−2i/D) when the midpoints m to its neighbours have m₁^D ≤ θ^(−2i) ≤ m₂^D."""
    found = inverse_frequencies(config(theta, dim))
    assert found.dtype == np.float32
    for i, f in enumerate(found):
        power = Fraction(theta) ** (-2 * i)
        below, above = (np.nextafter(f, np.float32(to)) for to in (0, np.inf))
        low, high = ((Fraction(float(f)) + Fraction(float(g))) / 2 for g in (below, above))
        assert low**dim <= power <= high**dim


def test_linear_and_factors_divide() -> None:
    plain = [float(np.float64(10000.0) ** (-i / 2)) for i in range(2)]  # 1 and 0.01: exact cases of D = 4
    linear = inverse_frequencies(config(10000.0, 4, RopeScaling("linear", factor=3.0)))
    assert linear.tolist() == np.array([f / 3 for f in plain], np.float32).tolist()
    factors = inverse_frequencies(config(10000.0, 4, RopeScaling("factors", factors=(1.0, 7.0))))
    assert factors.tolist() == np.array([1.0, plain[1] / 7], np.float32).tolist()


def test_llama3_has_three_regions() -> None:
    """Llama 3.1's parameters: short waves stay, long ones are stretched by the factor, the rest is mixed."""
    scaling = RopeScaling("llama3", factor=8.0, low=1.0, high=4.0, original_context=8192)
    plain = inverse_frequencies(config(500000.0, 128)).astype(np.float64)
    ratio = plain / inverse_frequencies(config(500000.0, 128, scaling)).astype(np.float64)
    wave = 2 * np.pi / plain
    assert (ratio[wave < 8192 / 4] == 1).all()
    assert (ratio[wave > 8192] == 8).all()
    between = (wave > 8192 / 4) & (wave < 8192)
    assert between.sum() >= 5
    smooth = (8192 / wave[between] - 1) / 3
    expected = 1 / ((1 - smooth) / 8 + smooth)
    # Two binary32 roundings in the ratio, 2⁻²⁴ each, and binary64 beside them.
    assert (np.abs(ratio[between] / expected - 1) < 2.5 * 2.0**-24).all()


@pytest.mark.parametrize("theta", [1e-300, 1e-38])
def test_a_frequency_beyond_float32_is_refused(theta: float) -> None:
    with pytest.raises(InputError, match="an angle of inf radians"):
        rope_tables(inverse_frequencies(config(theta, 64)), 64)


def test_from_a_folder(write_folder: Callable[..., Path]) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    old = load_source(write_folder({"rope_scaling": scaling})).config
    new = load_source(write_folder({"rope_parameters": scaling | {"rope_theta": 10000.0}})).config
    assert old.rope_scaling == new.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 64)
