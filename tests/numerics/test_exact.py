"""fma, bfloat16 rounding and lane sums against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.numerics import (
    assert_bitwise_equal,
    bf16_round,
    first_difference,
    fma32,
    lanes16_sum,
    lanes16_sum_squares,
    lanes16_tree,
    rsqrt32,
)


def nearest_float(value: Fraction, bits: int = 24, lowest: int = -149, overflow: int = 128) -> float:
    """Round a non-zero rational to the nearest number of `bits` bits, ties to even, by integers alone."""
    sign, size = (-1 if value < 0 else 1), abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    quantum = Fraction(2) ** max(exponent - bits + 1, lowest)
    count = round(size / quantum)  # Fraction rounds half to even
    result = count * quantum
    return sign * (float("inf") if result >= Fraction(2) ** overflow else float(result))


def exact_fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a·b + c for float32, with every special case of IEEE-754 written out."""
    x, y, z = float(a), float(b), float(c)
    if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
        return np.float32(x * y + z)  # no rounding: the product of two float32 never overflows binary64
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total:
        result = np.float32(nearest_float(total))
        return -np.abs(result) if total < 0 else result  # a negative result may round to −0
    return np.float32(x * y + z)  # an exact zero: its sign follows the signs of product and addend


def from_bits(bits: object) -> np.ndarray:
    return np.asarray(bits, np.uint32).view(np.float32)


SPECIAL = from_bits(
    [
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00800001,
        0x80800000,
        0x3F800000, 0xBF800000, 0x3F800001, 0x3F7FFFFF, 0x33800000, 0xB3800000, 0x34000000,
        0x1F800000,
        0x7F7FFFFF, 0xFF7FFFFF, 0x7F000000, 0x5F800000, 0xDF7FFFFF, 0x7F800000, 0xFF800000,
        0x7FC00000,
    ]
)  # fmt: skip


def halfway_cases() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Products half way between two floats, with addends far below that break the tie, or do not."""
    rng = np.random.default_rng(24)
    a = (rng.integers(2**11, 2**12, 4000) * 2 + 1).astype(np.float32)
    b = (rng.integers(2**11, 2**12, 4000) | 1).astype(np.float32)
    tiny = np.ldexp(rng.choice([-1.0, 0.0, 1.0], 4000), rng.integers(-148, -20, 4000)).astype(np.float32)
    scale = np.ldexp(np.float32(1), rng.integers(-100, 80, 4000)).astype(np.float32)
    return a * scale, b, tiny * np.minimum(scale, np.float32(1))


def expected_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array([exact_fma(*triple) for triple in zip(a, b, c, strict=True)], np.float32)


def test_fma_every_triple_of_special_values() -> None:
    a, b, c = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL, SPECIAL))
    assert_bitwise_equal(fma32(a, b, c), expected_fma(a, b, c))


def test_fma_halfway_and_a_naive_fma_fails_it() -> None:
    a, b, c = halfway_cases()
    expected = expected_fma(a, b, c)
    assert_bitwise_equal(fma32(a, b, c), expected)
    naive = (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)
    assert first_difference(naive, expected) is not None, "the cases do not tell two roundings from one"


def test_fma_random_patterns_and_cancellation() -> None:
    rng = np.random.default_rng(7)
    a, b, c = from_bits(rng.integers(0, 2**32, (3, 20_000), dtype=np.uint32))
    assert_bitwise_equal(fma32(a, b, c), expected_fma(a, b, c), "any patterns")
    a, b = rng.standard_normal((2, 20_000)).astype(np.float32)
    c = np.nextafter(-(a * b), rng.choice(np.float32([-9, 9]), 20_000))
    assert_bitwise_equal(fma32(a, b, c), expected_fma(a, b, c), "cancellation")
    small = np.ldexp(a, rng.integers(-80, -60, 20_000)).astype(np.float32)
    least = from_bits(rng.integers(0, 2**20, 20_000, dtype=np.uint32))
    assert_bitwise_equal(fma32(small, small[::-1], least), expected_fma(small, small[::-1], least), "denormals")


PATTERN = st.integers(0, 2**32 - 1)


@given(PATTERN, PATTERN, PATTERN)
@settings(max_examples=500)
def test_fma_any_patterns(a: int, b: int, c: int) -> None:
    x, y, z = from_bits([a]), from_bits([b]), from_bits([c])
    assert_bitwise_equal(fma32(x, y, z), expected_fma(x, y, z))


@given(st.integers(2**23, 2**24 - 1), st.integers(2**23, 2**24 - 1), st.integers(-60, 60), PATTERN)
@settings(max_examples=500)
def test_fma_addend_near_any_bit_of_the_product(a: int, b: int, shift: int, c: int) -> None:
    x, y = np.float32([a]), np.float32([b])
    z = np.ldexp(np.float32([1 + (c & 0x7FFFFF) / 2**23]), 46 + shift) * np.float32(-1 if c >> 31 else 1)
    assert_bitwise_equal(fma32(x, y, z), expected_fma(x, y, z))


def test_fma_broadcasts_and_keeps_scalars_scalar() -> None:
    assert fma32(2.0, 3.0, 4.0).shape == ()
    assert fma32(np.ones((3, 1)), np.ones(4), 1.0).shape == (3, 4)
    assert fma32(np.ones((1, 1)), 1.0, 1.0).shape == (1, 1)


def test_bf16_all_exponents_with_every_kind_of_lower_half() -> None:
    for first, lower in enumerate((0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)):
        upper = np.arange(first % 3, 2**16, 3, dtype=np.uint32) << np.uint32(16)
        x = from_bits(upper | np.uint32(lower))
        got = bf16_round(x)
        number = ~np.isnan(x)
        assert np.isnan(got[~number]).all()
        finite = np.isfinite(x) & (x != 0)
        expected = np.array([nearest_float(Fraction(float(v)), bits=8, lowest=-133) for v in x[finite]])
        expected = np.where(np.abs(expected) < 2.0**-55, 0.0, expected).astype(np.float32)
        assert_bitwise_equal(got[finite], expected, f"lower half {lower:#x}")
        assert_bitwise_equal(got[np.isinf(x)], x[np.isinf(x)])
        assert (got[number].view(np.uint32) & 0xFFFF == 0).all()


def test_bf16_flush_boundary() -> None:
    least = np.float32(2.0**-55)
    below = np.nextafter(least, np.float32(0))
    x = np.float32([1, -1, 1 - 2**-9, 1 - 2**-8, 0]) * least
    # What rounds up to 2^-55 stays; the bfloat16 below it is flushed.
    assert_bitwise_equal(bf16_round(x), np.array([least, -least, least, 0, 0], np.float32))
    assert_bitwise_equal(bf16_round(np.float32([below, -below, -0.0])), np.array([least, -least, 0], np.float32))


def test_bf16_partial_sums_are_never_denormal() -> None:
    rng = np.random.default_rng(55)
    x = bf16_round(np.ldexp(rng.standard_normal(5000), rng.integers(-60, -50, 5000)))
    y = bf16_round(np.ldexp(rng.standard_normal(5000), rng.integers(-60, -50, 5000)))
    acc = np.zeros(50, np.float32)
    for a, b in zip(x.reshape(100, 50), y.reshape(100, 50), strict=True):
        acc = fma32(a, b, acc)
        assert (np.abs(acc[acc != 0]) >= np.finfo(np.float32).tiny).all()


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 31, 32, 33, 256, 576])
def test_lane_sums_written_out(n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    plain, squares = [np.float32(0)] * 16, [np.float32(0)] * 16
    for i, value in enumerate(x):
        plain[i % 16] = plain[i % 16] + value
        squares[i % 16] = exact_fma(value, value, squares[i % 16])
    for lanes, got in ((plain, lanes16_sum(x)), (squares, lanes16_sum_squares(x))):
        a = list(lanes)
        for j in range(8):
            a[j] = a[j] + a[j + 8]
        for j in range(4):
            a[j] = a[j] + a[j + 4]
        for j in range(2):
            a[j] = a[j] + a[j + 2]
        assert_bitwise_equal(got, np.array(a[0] + a[1], np.float32))
        assert_bitwise_equal(lanes16_tree(np.array(lanes)), got)


def test_lane_sums_differ_from_numpys_order() -> None:
    x = np.random.default_rng(3).standard_normal((64, 576)).astype(np.float32)
    assert first_difference(lanes16_sum(x), np.sum(x, axis=1)) is not None
    assert_bitwise_equal(lanes16_sum(x)[5:6], lanes16_sum(x[5:6]), "a row alone")


def test_rsqrt_is_two_roundings() -> None:
    x = np.random.default_rng(4).uniform(1e-6, 4, 1000).astype(np.float32)
    root = np.sqrt(x.astype(np.float64)).astype(np.float32)  # binary64 and back: sqrt has no double rounding problem
    assert_bitwise_equal(rsqrt32(x), (1 / root.astype(np.float64)).astype(np.float32))
