"""Section 1 of docs/numerics.md in plain numpy: correctly rounded fma, bf16, lane sums, exp and log.

These functions define bits and are slow; the kernels in csrc are the fast form. All take arrays of any shape
(scalars included), broadcast, and return arrays of float32. They never warn: overflow and NaN are results
like any other. numpy's own float32 and float64 `+ - * / sqrt` and conversions are the IEEE operations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from samebits.numerics.contract import BF16_FLUSH, LANES

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_EXP_LOWEST = np.float32(-87.0)
_EXP_HIGHEST = np.float32(88.0)
_LOG2_E = np.float32(float.fromhex("0x1.715476p+0"))
_ROUNDER = np.float32(float.fromhex("0x1.8p+23"))
_MINUS_LN2_HIGH = np.float32(-float.fromhex("0x1.62e400p-1"))
_MINUS_LN2_LOW = np.float32(-float.fromhex("0x1.7f7d1cp-20"))
_EXP_COEFFICIENTS = tuple(
    np.float32(float.fromhex(c))  # c6 … c2, then the two ones
    for c in ("0x1.6a2434p-10", "0x1.1239e2p-7", "0x1.5558f2p-5", "0x1.555492p-3", "0x1.fffffcp-2", "1", "1")
)
_SQRT_2 = float.fromhex("0x1.6a09e667f3bcdp+0")
_LN_2 = float.fromhex("0x1.62e42fefa39efp-1")


def fma32(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """Return a·b + c rounded once to float32, for float32 `a`, `b`, `c` (broadcast together).

    The product of two floats is exact in binary64. The sum is rounded to binary64 *to odd* (when it is
    inexact, to the neighbour with an odd significand), after which rounding to float32 cannot round twice:
    53 ≥ 24 + 2 bits (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE Trans.
    Computers 57(4), 2008).
    """
    with np.errstate(all="ignore"):
        product = np.asarray(a, np.float32).astype(np.float64) * np.asarray(b, np.float32).astype(np.float64)
        addend = np.asarray(c, np.float32).astype(np.float64)
        total = np.atleast_1d(product + addend)
        shape = (product + addend).shape if total.size == 1 else total.shape
        # TwoSum (Knuth): product + addend = total + error, exactly. NaN where an operand is infinite.
        part = total - product
        error = (product - (total - part)) + (addend - part)
        bits = total.view(np.int64)
        inexact = (error != 0) & np.isfinite(error) & ((bits & 1) == 0)
        away = (error > 0) == (total > 0)
        odd = np.where(inexact, bits + np.where(away, 1, -1), bits).view(np.float64)
        return odd.astype(np.float32).reshape(shape)


def bf16_round(x: ArrayLike) -> F32:
    """Return `x` rounded to the nearest bfloat16 (ties to even) as float32; magnitudes below 2⁻⁵⁵ give +0."""
    values = np.array(x, np.float32)
    bits = np.atleast_1d(values).view(np.uint32)
    half_to_even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = ((bits + half_to_even) & np.uint32(0xFFFF0000)).view(np.float32)
    with np.errstate(all="ignore"):
        flushed = np.where(np.abs(rounded) < np.float32(BF16_FLUSH), np.float32(0), rounded)
        result = np.where(np.isnan(values), np.float32(np.nan), flushed.reshape(values.shape))
    return result.astype(np.float32)


def lanes16_tree(lanes: ArrayLike) -> F32:
    """Add sixteen lanes, the last axis of `lanes`, by the fixed tree of section 1.2."""
    a = np.array(lanes, np.float32)
    with np.errstate(all="ignore"):
        for half in (8, 4, 2, 1):
            a = a[..., :half] + a[..., half : 2 * half]
    return np.asarray(a[..., 0], np.float32)


def lanes16_sum(x: ArrayLike) -> F32:
    """Sum the last axis in sixteen lanes, step `acc = acc + x`: (..., n) to (...)."""
    values = np.asarray(x, np.float32)
    lanes = np.zeros((*values.shape[:-1], LANES), np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, values.shape[-1], LANES):
            part = values[..., start : start + LANES]
            lanes[..., : part.shape[-1]] = lanes[..., : part.shape[-1]] + part
    return lanes16_tree(lanes)


def lanes16_sum_squares(x: ArrayLike) -> F32:
    """Sum the squares of the last axis in sixteen lanes, step `acc = fma(x, x, acc)`: (..., n) to (...)."""
    values = np.asarray(x, np.float32)
    lanes = np.zeros((*values.shape[:-1], LANES), np.float32)
    for start in range(0, values.shape[-1], LANES):
        part = values[..., start : start + LANES]
        lanes[..., : part.shape[-1]] = fma32(part, part, lanes[..., : part.shape[-1]])
    return lanes16_tree(lanes)


def exp32(x: ArrayLike) -> F32:
    """Return exp(x) by section 1.3: +0 below −87, exp(88) above 88, within 1 ulp between, 1 at ±0."""
    given = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        inside = np.where((given >= _EXP_LOWEST) & (given <= _EXP_HIGHEST), given, np.float32(0))
        inside = np.where(given > _EXP_HIGHEST, _EXP_HIGHEST, inside).astype(np.float32)
        n = (fma32(inside, _LOG2_E, _ROUNDER) - _ROUNDER).astype(np.float32)
        r = fma32(n, _MINUS_LN2_LOW, fma32(n, _MINUS_LN2_HIGH, inside))
        p = np.full(given.shape, _EXP_COEFFICIENTS[0], np.float32)
        for coefficient in _EXP_COEFFICIENTS[1:]:
            p = fma32(p, r, coefficient)
        result = np.ldexp(p, n.astype(np.int32))  # exact: the result is never a denormal
        result = np.where(given < _EXP_LOWEST, np.float32(0), result)
        return np.where(np.isnan(given), np.float32(np.nan), result).astype(np.float32)


def log32(x: ArrayLike) -> F32:
    """Return the natural logarithm of float32 `x` ≥ 1 (or NaN) by section 1.4."""
    given = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        m, exponent = np.frexp(given.astype(np.float64))  # m in [½, 1); exact
        m, e = m * 2.0, exponent.astype(np.float64) - 1.0
        high = m > _SQRT_2
        m, e = np.where(high, m / 2.0, m), np.where(high, e + 1.0, e)
        z = (m - 1.0) / (m + 1.0)
        s = z * z
        q = np.full(given.shape, 1.0 / 19.0)
        for denominator in range(17, 0, -2):
            q = q * s + 1.0 / denominator
        return np.asarray((2.0 * z) * q + e * _LN_2).astype(np.float32)


def rsqrt32(x: ArrayLike) -> F32:
    """Return 1 ÷ sqrt(x), two roundings (section 3.2)."""
    with np.errstate(all="ignore"):
        return np.asarray(np.float32(1) / np.sqrt(np.asarray(x, np.float32)), np.float32)
