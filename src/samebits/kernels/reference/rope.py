"""Rotary embedding, section 3.3 of docs/numerics.md. The tables are `samebits.numerics.rope_tables`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samebits.numerics import fma32

F32 = NDArray[np.float32]


def rotate(x: F32, cos: F32, sin: F32) -> F32:
    """Return every head of x (T, heads, D) rotated by the angles of its row: cos and sin are (T, D/2)."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    c, s = cos[:, None, :], sin[:, None, :]
    with np.errstate(all="ignore"):
        return np.concatenate([fma32(first, c, -(second * s)), fma32(second, c, first * s)], axis=-1)
