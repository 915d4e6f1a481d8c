"""From rows of logits to tokens (docs/numerics.md 4). A row's token depends on that row and its request alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from samebits import kernels
from samebits.engine.request import Sequence, TopLogprob

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token; ``token_id`` is None where the row's logits are not all finite."""

    token_id: int | None
    logprob: float | None = None
    top: tuple[TopLogprob, ...] = ()


def sample_rows(ctx: kernels.Context, logits: Floats, sequences: Rows[Sequence]) -> list[Sampled]:
    """Chooses the next token of each sequence from its row of logits (R, V)."""
    finite = _finite_rows(logits)
    tokens = kernels.argmax(ctx, logits)
    results = []
    for row, sequence in enumerate(sequences):
        if not finite[row]:
            results.append(Sampled(None))
            continue
        token = int(tokens[row])
        params = sequence.params
        if _adjusts(sequence) or params.temperature > 0:
            adjusted = adjust(logits[row], sequence) if _adjusts(sequence) else logits[row]
            token = kernels.sample(
                ctx,
                adjusted,
                params.temperature,
                params.top_k,
                params.top_p,
                params.min_p,
                sequence.seed or 0,
                len(sequence.tokens) - sequence.prompt_length,
                sequence.index,
            )
        if params.logprobs is None:
            results.append(Sampled(token))
            continue
        scores = np.empty((1, logits.shape[1]), np.float32)
        kernels.log_softmax(ctx, logits[row : row + 1], scores)
        ids, values = kernels.topk(ctx, scores, min(params.logprobs, scores.shape[1]))
        top = tuple(TopLogprob(int(i), float(v)) for i, v in zip(ids[0], values[0], strict=True))
        results.append(Sampled(token, float(scores[0, token]), top))
    return results


def _finite_rows(logits: Floats) -> npt.NDArray[np.bool_]:
    # A sum is finite unless an element is not (or finite ones overflow it): one cheap pass, then the exact look.
    with np.errstate(over="ignore", invalid="ignore"):
        sums = logits.sum(axis=1)
    finite: npt.NDArray[np.bool_] = np.isfinite(sums)
    for row in np.flatnonzero(~finite):
        finite[row] = np.isfinite(logits[row]).all()
    return finite


def _adjusts(sequence: Sequence) -> bool:
    p = sequence.params
    return bool(p.logit_bias or p.repetition_penalty != 1 or p.presence_penalty != 0 or p.frequency_penalty != 0)


def adjust(row: Floats, sequence: Sequence) -> Floats:
    """A copy of the row (V,) after penalties and bias, steps 1 to 3 of section 4."""
    p = sequence.params
    row = row.copy()
    if p.repetition_penalty != 1:
        seen = np.unique(np.asarray(sequence.tokens, np.int64))
        penalty = np.float32(p.repetition_penalty)
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
    if p.frequency_penalty != 0 or p.presence_penalty != 0:
        counts = Counter(sequence.output)
        ids = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        row[ids] = row[ids] - np.float32(p.frequency_penalty) * times
        row[ids] = row[ids] - np.float32(p.presence_penalty)
    for token, bias in (p.logit_bias or {}).items():
        row[token] = row[token] + np.float32(bias)
    return row
