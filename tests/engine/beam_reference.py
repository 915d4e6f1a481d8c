"""Section 4.3 of docs/numerics.md as plain code over the whole vocabulary: what the search is compared with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.kernels.reference import log_softmax

Logits = Callable[[list[int]], NDArray[np.float32]]


@dataclass(frozen=True)
class Found:
    token_ids: tuple[int, ...]
    logprobs: bytes
    total: bytes
    score: bytes


@dataclass(frozen=True)
class Rules:
    """What a control changes.

    Attributes:
        sums: type of the running sum.
        parent_first: of equal sums the lower place of the parent comes first.
        ids_descending: of equal logits the higher id comes first.
        stops_early: the search ends when W are finished, whatever lives.
    """

    sums: Any = np.float32
    parent_first: bool = True
    ids_descending: bool = False
    stops_early: bool = False


CONTRACT = Rules()


def search(
    logits: Logits,
    prompt: Sequence[int],
    end_ids: Collection[int],
    *,
    width: int,
    longest: int,
    alpha: float,
    rules: Rules = CONTRACT,
) -> list[Found]:
    """All finished hypotheses, best first. Only for α of 0, 1 and 2, whose powers are exact."""
    live: list[tuple[list[int], list[np.float32], Any]] = [([], [], None)]
    finished: list[tuple[np.float32, list[int], list[np.float32], Any]] = []
    while live:
        rows = [logits([*prompt, *tokens]) for tokens, _, _ in live]
        added = np.concatenate([log_softmax(row[None])[0] for row in rows])
        before = np.repeat([rules.sums(0) if total is None else total for _, _, total in live], len(rows[0]))
        sums = before + added.astype(rules.sums)  # 0 + x is x, as no log-probability is -0
        parents, ids = np.divmod(np.arange(len(sums)), len(rows[0]))
        by_parent = parents if rules.parent_first else -parents
        order = np.lexsort((-ids if rules.ids_descending else ids, -np.concatenate(rows), by_parent, -sums))
        candidates = []
        for at in order[: width + width * len(end_ids)].tolist():
            tokens, logprobs, _ = live[parents[at]]
            candidates.append(([*tokens, int(ids[at])], [*logprobs, added[at]], sums[at]))
        length = len(candidates[0][0])
        for tokens, logprobs, total in candidates[:width]:
            if length == longest or tokens[-1] in end_ids:
                finished.append((np.float32(total) / np.float32(length**alpha), tokens, logprobs, total))
        finished = sorted(finished, key=lambda f: -f[0])[:width]
        live = [c for c in candidates if c[0][-1] not in end_ids][:width] if length < longest else []
        if live and len(finished) == width:
            best = np.float32(live[0][2]) / np.float32(length**alpha)
            if rules.stops_early or not any(f[0] < best for f in finished):
                break
    return [
        Found(tuple(tokens), np.array(logprobs, np.float32).tobytes(), np.float32(total).tobytes(), score.tobytes())
        for score, tokens, logprobs, total in finished
    ]
