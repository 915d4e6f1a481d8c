"""The operations of docs/numerics.md, on C-contiguous arrays.

Shape letters: T rows of a batch, M rows of a matrix, N outputs, K inputs, D head dimension, F inner width,
R rows of logits, V vocabulary, S sequences. Inputs may be any CPU array with the buffer or DLPack protocol. All raise
``ValueError`` naming the argument when a shape does not fit, and ``TypeError`` for a wrong dtype or layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
    silu_mul,
)

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


def argmax(ctx: _core.Context, logits: Floats) -> Ints:
    """The id (R,) int32 of the greatest logit of each row of (R, V); ties go to the lowest id."""
    out = np.empty(logits.shape[0], np.int32)
    _core.argmax(ctx, logits, out)
    return out


def exclude(logits: Floats, allowed: npt.NDArray[np.bool_], out: Floats) -> None:
    """Step 3 of docs/numerics.md 4: the logits (V,) that are allowed, -infinity for the others; ``out`` may be them."""
    _core.exclude(logits, allowed, out)


def log_softmax_at(ctx: _core.Context, logits: Floats, columns: Ints) -> Floats:
    """Of the log-probabilities of each row of logits (R, V) those of some ids: (R, W) int32 to (R, W) float32."""
    out = np.empty(columns.shape, np.float32)
    _core.log_softmax_at(ctx, logits, columns, out)
    return out


def topk(ctx: _core.Context, logits: Floats, k: int) -> tuple[Ints, Floats]:
    """Ids (R, k) int32 and values (R, k) float32 of the k greatest, by (value descending, id ascending)."""
    ids = np.empty((logits.shape[0], k), np.int32)
    values = np.empty((logits.shape[0], k), np.float32)
    _core.topk(ctx, logits, ids, values)
    return ids, values


class Draw(NamedTuple):
    """How to draw from one row, docs/numerics.md 4 steps 4 to 8.

    Attributes:
        temperature: rounded to float32; below 2⁻¹⁷ the answer is the argmax.
        top_k: 0 for off. top_p: 1 for off. min_p: 0 for off.
        seed: −2⁶³ … 2⁶³ − 1.
        token_index: index of the token in the output.
        choice: index of the choice among the n of a request.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    token_index: int
    choice: int


def sample(ctx: _core.Context, logits: Floats, draws: Sequence[Draw]) -> Ints:
    """The ids (R,) int32 drawn from rows of logits (R, V) that penalties and bias were applied to, one draw a row.

    Each row has at least one finite logit and no NaN or +∞.
    """
    out = np.empty(logits.shape[0], np.int32)
    _core.sample(
        ctx,
        logits,
        np.array([d.temperature for d in draws], np.float32),
        np.array([d.top_k for d in draws], np.int64),
        np.array([d.top_p for d in draws], np.float64),
        np.array([d.min_p for d in draws], np.float64),
        np.array([d.seed for d in draws], np.int64),
        np.array([d.token_index for d in draws], np.uint32),
        np.array([d.choice for d in draws], np.uint32),
        out,
    )
    return out


__all__ = [
    "Draw",
    "KvCache",
    "PackedMatrix",
    "argmax",
    "attention",
    "dequantize",
    "embedding",
    "exclude",
    "linear",
    "log_softmax",
    "log_softmax_at",
    "rmsnorm",
    "rope_store",
    "round_bf16",
    "sample",
    "silu_mul",
    "topk",
]
