"""RMSNorm, section 3.2 of docs/numerics.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samebits.numerics import lanes16_sum_squares, rsqrt32

F32 = NDArray[np.float32]


def rmsnorm(x: F32, weight: F32, eps: float) -> F32:
    """Return x (T, D) over its root mean square, times weight (D,); `eps` is rounded to a float32."""
    with np.errstate(all="ignore"):
        mean = lanes16_sum_squares(x) / np.float32(x.shape[-1])
        return np.asarray((x * rsqrt32(mean + np.float32(eps))[..., None]) * weight, np.float32)
