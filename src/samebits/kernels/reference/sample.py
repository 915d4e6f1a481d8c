"""Sampling, section 4 of docs/numerics.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from samebits.kernels.reference.topk import argmax, topk
from samebits.numerics import TEMPERATURE_LEAST, TOP_P_BITS, WEIGHT_BITS, exp32, random_u64

F32 = NDArray[np.float32]


def adjust(
    logits: F32,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    *,
    repetition: float = 1.0,
    frequency: float = 0.0,
    presence: float = 0.0,
    bias: Mapping[int, float] | None = None,
) -> F32:
    """Return logits (V,) after steps 1 to 3, penalties then bias. Parameters are rounded to float32."""
    row = np.array(logits, np.float32)
    rho, phi, pi = np.float32(repetition), np.float32(frequency), np.float32(presence)
    with np.errstate(all="ignore"):
        if rho != 1:
            for token in {*prompt_ids, *output_ids}:
                row[token] = row[token] / rho if row[token] > 0 else row[token] * rho
        for token, count in Counter(output_ids).items():
            row[token] = (row[token] - phi * np.float32(count)) - pi
        for token, amount in (bias or {}).items():
            row[token] = row[token] + np.float32(amount)
    return row


def weights(logits: F32, temperature: float) -> list[int]:
    """Return the integer weight of each id of logits (V,): ⌊exp((l − max) ÷ T) · 2⁴⁰⌋, step 4."""
    with np.errstate(all="ignore"):
        scaled = exp32((logits - np.max(logits)) / np.float32(temperature))
    return [int(w) for w in np.floor(scaled.astype(np.float64) * 2.0**WEIGHT_BITS).tolist()]


def kept(logits: F32, weight: Sequence[int], top_k: int, top_p: float, min_p: float) -> list[int]:
    """Return the ids that may be drawn, best first: steps 5 to 7. 0 turns top_k and min_p off, 1 top_p."""
    order: list[int] = topk(logits[None], logits.size).ids[0].tolist()
    if top_k > 0:
        order = order[:top_k]
    if top_p < 1:
        threshold = math.floor(top_p * 2.0**TOP_P_BITS) * sum(weight[i] for i in order)
        sum_so_far = 0
        for rank, token in enumerate(order, start=1):
            sum_so_far += weight[token]
            if sum_so_far << TOP_P_BITS >= threshold:
                order = order[:rank]
                break
    if min_p > 0:
        least = math.ceil(min_p * 2.0**WEIGHT_BITS)
        order = [token for rank, token in enumerate(order) if rank == 0 or weight[token] >= least]
    return order


def sample(
    logits: F32,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    token_index: int,
    choice: int,
) -> int:
    """Draw an id from logits (V,) that penalties and bias were applied to: steps 4 to 8.

    Args:
        logits: float32 (V,), at least one finite and none NaN or +∞.
        temperature: rounded to float32; below 2⁻¹⁷ the answer is the argmax.
        top_k: 0 for off. top_p: 1 for off. min_p: 0 for off.
        seed: −2⁶³ … 2⁶³ − 1.
        token_index: index of the token in the output.
        choice: index of the choice among the n of a request.
    """
    if np.float32(temperature) < np.float32(TEMPERATURE_LEAST):
        return int(argmax(logits[None])[0])
    weight = weights(logits, temperature)
    chosen = sorted(kept(logits, weight, top_k, top_p, min_p))
    target = (random_u64(seed, token_index, choice) * sum(weight[i] for i in chosen)) >> 64
    sum_so_far = 0
    for token in chosen:
        sum_so_far += weight[token]
        if sum_so_far > target:
            return token
    raise AssertionError("the target is below the sum of the weights")
