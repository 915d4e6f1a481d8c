"""The best ids of a row, with their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from samebits import kernels

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TopLogprob:
    """One of the best ids at a position."""

    token_id: int
    logprob: float


def best_of_rows(
    ctx: kernels.Context, logits: Floats, logprobs: Floats, counts: Sequence[int]
) -> list[tuple[TopLogprob, ...]]:
    """Of each row of ``logits`` and ``logprobs`` (R, V) its best ids, best first, up to ``counts`` or V of them.

    Ordered by logit, since two logits that differ can have one log-probability.
    """
    most = min(max(counts, default=0), logits.shape[1])
    if most == 0:
        return [()] * len(counts)
    ids = kernels.topk(ctx, logits, most)[0]
    return [
        tuple(TopLogprob(t, float(logprobs[row, t])) for t in ids[row, :count].tolist())
        for row, count in enumerate(counts)
    ]
