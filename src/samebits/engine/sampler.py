"""From rows of logits to tokens (docs/numerics.md 4). A row's token depends on that row and its request alone."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from samebits import kernels
from samebits.engine.constraint import Constraint
from samebits.engine.request import Sequence
from samebits.engine.top_logprobs import TopLogprob, score_rows
from samebits.errors import ConstraintError, NumericsError, SamebitsError

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token, or why there is none: ``token_id`` is None exactly where ``error`` is set."""

    token_id: int | None
    logprob: float | None = None
    top: tuple[TopLogprob, ...] = ()
    error: SamebitsError | None = None


def sample_rows(ctx: kernels.Context, logits: Floats, sequences: Rows[Sequence]) -> list[Sampled]:
    """Chooses the next token of each sequence from its row of logits (R, V). Computes only what is asked for."""
    plain = [s.params.temperature == 0 and not _adjusts(s) and s.constraint is None for s in sequences]
    best = kernels.argmax(ctx, logits).tolist() if any(plain) else []
    sampled = [Sampled(None)] * len(sequences)
    drawn = []
    for row, finite in enumerate(_finite_rows(logits).tolist()):
        if not finite:
            sampled[row] = Sampled(None, error=_not_finite(sequences[row]))
        elif plain[row]:
            sampled[row] = Sampled(best[row])
        else:
            drawn.append(row)
    for row, one in zip(drawn, _draw(ctx, logits, sequences, drawn), strict=True):
        sampled[row] = one
    tokens = [s.token_id for s in sampled]
    reported = [r for r, s in enumerate(sequences) if s.params.logprobs is not None and tokens[r] is not None]
    if not reported:
        return sampled
    chosen = logits if len(reported) == len(sequences) else logits[reported]
    counts = [sequences[row].params.logprobs or 0 for row in reported]
    ids = [token for row in reported if (token := tokens[row]) is not None]
    for row, scored in zip(reported, score_rows(ctx, chosen, ids, counts), strict=True):
        sampled[row] = Sampled(tokens[row], scored.logprob, scored.top)
    return sampled


def _draw(ctx: kernels.Context, logits: Floats, sequences: Rows[Sequence], rows: list[int]) -> list[Sampled]:
    """Tokens of the given rows, whose logits are finite; an error where a row's request leaves nothing to choose."""
    chosen, errors = logits, dict[int, SamebitsError]()
    if len(rows) < len(sequences) or any(_adjusts(s) or s.constraint is not None for s in sequences):
        chosen = logits[rows]  # a copy
        for i, row in enumerate(rows):
            try:
                _prepare(chosen[i], sequences[row])
            except (ConstraintError, NumericsError) as error:  # of this row alone
                errors[i] = error
    usable = [i for i in range(len(rows)) if i not in errors]
    drawn = [Sampled(None, error=errors.get(i)) for i in range(len(rows))]
    if usable:
        chosen = chosen if len(usable) == len(rows) else chosen[usable]
        ids = kernels.sample(ctx, chosen, [_draw_of(sequences[rows[i]]) for i in usable])
        for i, token in zip(usable, ids.tolist(), strict=True):
            drawn[i] = Sampled(token)
    return drawn


def _prepare(row: Floats, sequence: Sequence) -> None:
    """Steps 1 to 3 of section 4, in place."""
    if _adjusts(sequence):
        row[:] = adjust(row, sequence)
    if sequence.constraint is not None:
        exclude(row, sequence.constraint)
    if not np.isfinite(row.max()):  # a penalty overflowed to +infinity or NaN, or left nothing to choose
        raise _not_finite(sequence)


def _draw_of(sequence: Sequence) -> kernels.Draw:
    p, index = sequence.params, len(sequence.tokens) - sequence.prompt_length
    return kernels.Draw(p.temperature, p.top_k, p.top_p, p.min_p, sequence.seed or 0, index, sequence.index)


def exclude(row: Floats, constraint: Constraint) -> None:
    """Sets the row (V,) to -infinity for every id that the constraint does not allow: the end of step 3.

    Raises:
        ConstraintError: it allows none, or its limits are exceeded.
    """
    allowed = constraint.allowed()
    if not allowed.any():
        raise ConstraintError("the constraint allows no token here: no text in this model's tokens satisfies it")
    kernels.exclude(row, allowed, row)


def _not_finite(sequence: Sequence) -> NumericsError:
    return NumericsError(
        f"logits after {len(sequence.tokens)} tokens are not all finite: the model or a penalty overflowed"
    )


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
    with np.errstate(all="ignore"):
        return _adjust(row.copy(), sequence)


def _adjust(row: Floats, sequence: Sequence) -> Floats:
    p, history = sequence.params, sequence.history
    history.read(sequence.tokens, sequence.prompt_length)
    if p.repetition_penalty != 1:
        seen = history.seen
        penalty = np.float32(p.repetition_penalty)
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
    if p.frequency_penalty != 0 or p.presence_penalty != 0:
        counts = history.counts
        ids = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        row[ids] = row[ids] - np.float32(p.frequency_penalty) * times
        row[ids] = row[ids] - np.float32(p.presence_penalty)
    if p.logit_bias:
        row[p.biased_ids] = row[p.biased_ids] + p.biases
    return row
