"""Rotary sine and cosine tables, section 1.5 of docs/numerics.md. Run once when a model is loaded.

numpy's binary64 `+ - *` and rounding to an integer are the IEEE operations, so the tables have the same bits
everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

from samebits.errors import InputError
from samebits.numerics.contract import MAX_QUARTER_TURNS

_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_P1 = float.fromhex("0x1.921fb544p+0")
_P2 = float.fromhex("0x1.0b4611a6p-34")
_P3 = float.fromhex("0x1.3198a2e037073p-69")
_SINE = tuple((-1 if k % 4 == 3 else 1) / factorial(k) for k in range(15, 2, -2))  # −1/15!, 1/13!, … −1/3!
_COSINE = tuple((-1 if k % 4 == 2 else 1) / factorial(k) for k in range(16, 1, -2))  # 1/16!, −1/14!, … −1/2!
_CHUNK = 16_384  # elements at a time: a handful of binary64 temporaries stay in the second-level cache


@dataclass(frozen=True)
class RopeTables:
    """`cos` and `sin`, each float32 of shape (positions, D/2)."""

    cos: NDArray[np.float32]
    sin: NDArray[np.float32]


def rope_tables(inv_freq: NDArray[np.float32], count: int) -> RopeTables:
    """Return the tables of positions 0 … `count` − 1 for float32 inverse frequencies of shape (D/2,).

    Raises:
        InputError: an angle would reach 2²⁰ quarter turns, where the reduction is no longer exact.
    """
    frequencies = np.ascontiguousarray(inv_freq, np.float32)
    positions = np.arange(count, dtype=np.float32)
    if count and frequencies.size:
        with np.errstate(over="ignore", invalid="ignore"):
            furthest = float(np.max(positions) * np.max(np.abs(frequencies)))
        if not furthest * _TWO_OVER_PI < MAX_QUARTER_TURNS - 1:
            raise InputError(
                f"an angle of {furthest:.0f} radians is beyond the range of the rotary tables",
                field="context_length",
                remedy=f"Use at most {int(MAX_QUARTER_TURNS * 1.57)} positions.",
            )
    cos = np.empty((count, frequencies.size), np.float32)
    sin = np.empty((count, frequencies.size), np.float32)
    rows = max(1, _CHUNK // max(1, frequencies.size))
    for start in range(0, count, rows):
        angles = positions[start : start + rows, None] * frequencies  # rounded to float32
        _sincos(angles.astype(np.float64), cos[start : start + rows], sin[start : start + rows])
    return RopeTables(cos, sin)


def sincos32(angles: NDArray[np.float32]) -> RopeTables:
    """Return cosine and sine of float32 angles (radians, below 2²⁰ quarter turns), any shape."""
    given = np.asarray(angles, np.float32)
    tables = RopeTables(np.empty(given.shape, np.float32), np.empty(given.shape, np.float32))
    _sincos(given.astype(np.float64), tables.cos, tables.sin)
    return tables


def _sincos(a: NDArray[np.float64], cos_out: NDArray[np.float32], sin_out: NDArray[np.float32]) -> None:
    n = np.rint(a * _TWO_OVER_PI)
    r = a - n * _P1
    r -= n * _P2
    r -= n * _P3
    s = r * r
    sine = _horner(_SINE, s)
    sine *= s
    sine *= r
    sine += r
    cosine = _horner(_COSINE, s)
    cosine *= s
    cosine += 1.0
    quarter = n.astype(np.int64) & 3
    swap = (quarter & 1) == 1
    np.copyto(cos_out, np.where(swap, sine, cosine), casting="same_kind")
    np.copyto(sin_out, np.where(swap, cosine, sine), casting="same_kind")
    np.negative(cos_out, out=cos_out, where=(quarter == 1) | (quarter == 2))
    np.negative(sin_out, out=sin_out, where=quarter >= 2)


def _horner(coefficients: tuple[float, ...], s: NDArray[np.float64]) -> NDArray[np.float64]:
    value = np.full(s.shape, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= s
        value += coefficient
    return value
