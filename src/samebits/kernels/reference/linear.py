"""Linear layers, section 3.1 of docs/numerics.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samebits.numerics import INT8_BLOCK, INT8_LEAST, K_BLOCK, Profile, bf16_round, fma32

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Quantized:
    """Rows as int8 with one scale each: row m is about `values[m] * scale[m]`.

    Attributes:
        values: int8 (rows, K), in ±127.
        scale: float32 (rows,); 0 for a row of zeros, NaN for a row that holds a non-finite value.
    """

    values: NDArray[np.int8]
    scale: F32


def quantize(x: F32) -> Quantized:
    """Quantise each row of `x` (rows, K) symmetrically."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        greatest = np.max(np.abs(x), axis=1, initial=np.float32(0))
        finite = np.isfinite(x).all(axis=1)
        usable = finite & (greatest >= np.float32(INT8_LEAST))
        divisor = np.where(usable, greatest, np.float32(1)).astype(np.float32)
        scale = np.where(usable, divisor / np.float32(127), np.float32(0))
        inverse = np.where(usable, np.float32(127) / divisor, np.float32(0)).astype(np.float32)
        scaled = np.where(usable[:, None], x, np.float32(0)).astype(np.float32) * inverse[:, None]
        values = np.clip(np.rint(scaled), -127, 127).astype(np.int8)
        return Quantized(values, np.where(finite, scale, np.float32(np.nan)).astype(np.float32))


def linear(x: F32, w: F32, profile: Profile, residual: F32 | None = None) -> F32:
    """Return x · wᵀ, and `residual` plus that where one is given.

    Args:
        x: float32 (M, K).
        w: float32 (N, K), not yet converted to the profile.
        profile: how both are stored.
        residual: float32 (M, N).

    Returns:
        float32 (M, N).
    """
    if profile == "int8":
        y = _int8(x, w)
    elif profile == "bf16":
        y = _chains(bf16_round(x), bf16_round(w))
    else:
        y = _chains(np.asarray(x, np.float32), np.asarray(w, np.float32))
    if residual is None:
        return y
    with np.errstate(all="ignore"):
        return residual + y


def _chains(x: F32, w: F32) -> F32:
    total: F32 | None = None
    for start in range(0, x.shape[1], K_BLOCK):
        block = np.zeros((x.shape[0], w.shape[0]), np.float32)
        for k in range(start, min(start + K_BLOCK, x.shape[1])):
            block = fma32(x[:, k, None], w[None, :, k], block)
        with np.errstate(all="ignore"):
            total = block if total is None else total + block
    assert total is not None, "K is at least 1"
    return total


def _int8(x: F32, w: F32) -> F32:
    channels = quantize(w)
    total: F32 | None = None
    for start in range(0, x.shape[1], INT8_BLOCK):
        rows = quantize(x[:, start : start + INT8_BLOCK])
        weights = channels.values[:, start : start + INT8_BLOCK]
        sums = (rows.values.astype(np.int32) @ weights.astype(np.int32).T).astype(np.float32)
        scale = rows.scale[:, None]
        with np.errstate(all="ignore"):
            total = sums * scale if total is None else fma32(sums, scale, total)
    assert total is not None, "K is at least 1"
    with np.errstate(all="ignore"):
        return total * channels.scale[None, :]
