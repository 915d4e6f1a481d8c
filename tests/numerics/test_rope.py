"""Rotary tables against many-digit arithmetic."""

from __future__ import annotations

import time

import mpmath
import numpy as np
import pytest

from samebits.errors import InputError
from samebits.numerics import assert_bitwise_equal, rope_tables, sincos32


def frequencies(theta: float, dim: int) -> np.ndarray:
    return np.array([theta ** (-2 * i / dim) for i in range(dim // 2)], np.float64).astype(np.float32)


@pytest.mark.parametrize(("theta", "dim"), [(10_000.0, 64), (100_000.0, 64), (500_000.0, 128)])
def test_tables_are_the_nearest_floats(theta: float, dim: int) -> None:
    inv_freq = frequencies(theta, dim)
    tables = rope_tables(inv_freq, 8192)
    angles = (np.arange(8192, dtype=np.float32)[:, None] * inv_freq).astype(np.float64)
    # Reduction and polynomials are good to about 2^-52: only a near tie could round to the other neighbour.
    for got, exact in ((tables.cos, np.cos(angles)), (tables.sin, np.sin(angles))):
        unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
        assert (np.abs(got - exact) / unit).max() < 0.5 + 2.0**-24


def test_angles_against_mpmath_up_to_the_limit() -> None:
    rng = np.random.default_rng(5)
    quarter = np.arange(1, 400) * (np.pi / 2)
    angles = np.concatenate(
        [
            rng.uniform(0, 1.6e6, 1000),
            quarter,
            np.exp(rng.uniform(-60, 0, 500)),
            [0.0, np.pi / 4, 3 * np.pi / 4],
        ]
    ).astype(np.float32)
    tables = sincos32(angles)
    with mpmath.workdps(40):
        for got, function in ((tables.cos, mpmath.cos), (tables.sin, mpmath.sin)):
            for a, value in zip(angles, got, strict=True):
                exact = function(mpmath.mpf(float(a)))
                error = abs(mpmath.mpf(float(value)) - exact)
                assert error <= (0.5 + 2.0**-20) * float(np.spacing(np.abs(np.float32(float(exact))))), float(a)


def test_position_zero_and_signs_of_quadrants() -> None:
    tables = rope_tables(np.float32([1.0, 0.5]), 1)
    assert_bitwise_equal(tables.cos, np.ones((1, 2), np.float32))
    assert_bitwise_equal(tables.sin, np.zeros((1, 2), np.float32))
    quadrants = sincos32(np.float32([0.1, 1.6, 3.2, 4.7, 6.2]))
    assert [np.sign(v) for v in quadrants.cos] == [1, -1, -1, -1, 1]
    assert [np.sign(v) for v in quadrants.sin] == [1, 1, -1, -1, -1]


def test_rows_do_not_depend_on_how_many_there_are() -> None:
    inv_freq = frequencies(10_000.0, 64)
    long, short = rope_tables(inv_freq, 1500), rope_tables(inv_freq, 7)
    assert_bitwise_equal(short.cos, long.cos[:7])
    assert_bitwise_equal(short.sin, long.sin[:7])
    assert_bitwise_equal(sincos32(np.arange(1500, dtype=np.float32)[:, None] * inv_freq).sin, long.sin)


def test_an_angle_beyond_the_reduction_is_refused() -> None:
    with pytest.raises(InputError, match="context_length"):
        rope_tables(np.float32([1.0]), 1_700_000)


def test_tables_of_a_model_take_milliseconds() -> None:
    inv_freq = frequencies(10_000.0, 64)
    rope_tables(inv_freq, 16)
    best = min(_seconds(inv_freq) for _ in range(5))  # 7 ms of a processor of 2023
    assert best < 0.1, f"{best * 1000:.1f} ms for 8192 × 32"


def _seconds(inv_freq: np.ndarray) -> float:
    """Of the processor, whatever else it does."""
    start = time.thread_time()
    rope_tables(inv_freq, 8192)
    return time.thread_time() - start
