"""Log-probabilities of tokens, and of the best ids beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from samebits import kernels

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TopLogprob:
    """One of the best ids at a position."""

    token_id: int
    logprob: float


class Scored(NamedTuple):
    """The log-probability of a token, and the best ids beside it, best first."""

    logprob: float
    top: tuple[TopLogprob, ...]


def score_rows(ctx: kernels.Context, logits: Floats, token_ids: Sequence[int], counts: Sequence[int]) -> list[Scored]:
    """Of each row of logits (R, V) the log-probability of a token, and of as many of the best ids as ``counts`` says.

    The best are ordered by logit, since two logits that differ can have one log-probability.
    """
    most = min(max(counts, default=0), logits.shape[1])
    columns = np.empty((len(token_ids), 1 + most), np.int32)
    columns[:, 0] = token_ids
    if most:
        columns[:, 1:] = kernels.topk(ctx, logits, most)[0]
    ids, logprobs = columns.tolist(), kernels.log_softmax_at(ctx, logits, columns).tolist()
    return [
        Scored(own[0], tuple(TopLogprob(*pair) for pair in zip(best[1 : 1 + count], own[1 : 1 + count], strict=True)))
        for best, own, count in zip(ids, logprobs, counts, strict=True)
    ]
