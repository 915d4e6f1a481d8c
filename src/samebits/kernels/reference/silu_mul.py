"""silu(gate) · up, section 3.5 of docs/numerics.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samebits.numerics import exp32

F32 = NDArray[np.float32]


def silu_mul(gate_up: F32) -> F32:
    """Return silu(g) · u for gate_up (T, 2F): g is the first half of a row, u the second. Shape (T, F)."""
    half = gate_up.shape[-1] // 2
    gate, up = gate_up[..., :half], gate_up[..., half:]
    with np.errstate(all="ignore"):
        return np.asarray((gate / (np.float32(1) + exp32(-gate))) * up, np.float32)
