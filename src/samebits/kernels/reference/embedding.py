"""Token embedding, section 3.5 of docs/numerics.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samebits.kernels.reference.linear import quantize
from samebits.numerics import Profile, bf16_round

F32 = NDArray[np.float32]


def embedding(ids: NDArray[np.int32], w: F32, profile: Profile) -> F32:
    """Return the rows `ids` (T,) of w (V, K) as the profile stores them, as float32 (T, K)."""
    rows = np.asarray(w, np.float32)[ids]
    if profile == "fp32":
        return rows
    if profile == "bf16":
        return bf16_round(rows)
    quantized = quantize(rows)
    with np.errstate(all="ignore"):
        return quantized.values.astype(np.float32) * quantized.scale[:, None]
