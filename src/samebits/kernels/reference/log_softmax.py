"""Log-softmax, section 3.5 of docs/numerics.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samebits.numerics import SUM_BLOCK, exp32, lanes16_sum, log32

F32 = NDArray[np.float32]


def log_softmax(logits: F32) -> F32:
    """Return the log-probabilities of each row of logits (R, V). A NaN or +∞ makes its whole row NaN."""
    with np.errstate(all="ignore"):
        shifted = logits - np.max(logits, axis=1)[:, None]
        exponentials = exp32(shifted)
        total: F32 | None = None
        for start in range(0, logits.shape[1], SUM_BLOCK):
            block = lanes16_sum(exponentials[:, start : start + SUM_BLOCK])
            total = block if total is None else total + block
        assert total is not None, "V is at least 1"
        return np.asarray(shifted - log32(total)[:, None], np.float32)
