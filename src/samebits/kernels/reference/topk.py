"""Argmax and top-k, section 3.5 of docs/numerics.md. Order: logit descending, id ascending."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class TopK:
    """The greatest logits of each row: `ids` int32 (R, k) and `values` float32 (R, k)."""

    ids: NDArray[np.int32]
    values: F32


def argmax(logits: F32) -> NDArray[np.int32]:
    """Return the id of the greatest logit of each row of (R, V), the lowest among equals; int32 (R,)."""
    return np.asarray(np.argmax(logits, axis=1), np.int32)  # numpy returns the first of equals


def topk(logits: F32, k: int) -> TopK:
    """Return the first `k` ids of each row of logits (R, V) in the order, with their logits."""
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :k].astype(np.int32)
    return TopK(ids, np.take_along_axis(logits, ids, axis=1))
