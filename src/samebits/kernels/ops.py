"""The operations of docs/numerics.md, on C-contiguous arrays.

Shape letters: T rows of a batch, M rows of a matrix, N outputs, K inputs, D head dimension, F inner width,
R rows of logits, V vocabulary, S sequences. Inputs may be any CPU array with the buffer or DLPack protocol. All raise
``ValueError`` naming the argument when a shape does not fit, and ``TypeError`` for a wrong dtype or layout.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from samebits import _core
from samebits._core import (
    KvCache,
    PackedMatrix,
    attention,
    dequantize,
    embedding,
    linear,
    log_softmax,
    rmsnorm,
    rope_store,
    round_bf16,
    sample,
    silu_mul,
)

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


def argmax(ctx: _core.Context, logits: Floats) -> Ints:
    """The id (R,) int32 of the greatest logit of each row of (R, V); ties go to the lowest id."""
    out = np.empty(logits.shape[0], np.int32)
    _core.argmax(ctx, logits, out)
    return out


def topk(ctx: _core.Context, logits: Floats, k: int) -> tuple[Ints, Floats]:
    """Ids (R, k) int32 and values (R, k) float32 of the k greatest, by (value descending, id ascending)."""
    ids = np.empty((logits.shape[0], k), np.int32)
    values = np.empty((logits.shape[0], k), np.float32)
    _core.topk(ctx, logits, ids, values)
    return ids, values


__all__ = [
    "KvCache",
    "PackedMatrix",
    "argmax",
    "attention",
    "dequantize",
    "embedding",
    "linear",
    "log_softmax",
    "rmsnorm",
    "rope_store",
    "round_bf16",
    "sample",
    "silu_mul",
    "topk",
]
