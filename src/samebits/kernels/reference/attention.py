"""Attention of one sequence, section 3.4 of docs/numerics.md.

Shapes: T query rows, L keys, H query heads, G key-value heads, D head dimension.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samebits.numerics import KEY_BLOCK, Profile, bf16_round, exp32, fma32, lanes16_tree
from samebits.numerics.contract import LANES

F32 = NDArray[np.float32]


def attention(q: F32, keys: F32, values: F32, positions: NDArray[np.int32], profile: Profile) -> F32:
    """Return the attention of each query row to the keys at positions 0 … `positions[row]`.

    How a sequence is paged, chunked or batched does not appear here: `keys` and `values` are simply those
    of the sequence, gathered in order of position. Keys after a row's position are never read into its
    result.

    Args:
        q: float32 (T, H, D), rotated.
        keys, values: float32 (L, G, D), rotated keys; H is a multiple of G.
        positions: int32 (T,), each below L.
        profile: `bf16` and `int8` round q, keys, values and probabilities to bfloat16.

    Returns:
        float32 (T, H, D).
    """
    rounded = profile != "fp32"
    if rounded:
        q, keys, values = bf16_round(q), bf16_round(keys), bf16_round(values)
    share = q.shape[1] // keys.shape[1]
    keys, values = np.repeat(keys, share, axis=1), np.repeat(values, share, axis=1)  # (L, H, D)
    result = np.zeros(q.shape, np.float32)
    for t, p in enumerate(np.asarray(positions).tolist()):
        result[t] = _row(q[t], keys[: p + 1], values[: p + 1], rounded)
    return result


def _row(q: F32, keys: F32, values: F32, rounded: bool) -> F32:
    """One query row (H, D) over all keys (L, H, D) that it sees: blocks combined in ascending order."""
    most, total, out = _block(q, keys[:KEY_BLOCK], values[:KEY_BLOCK], rounded)
    with np.errstate(all="ignore"):
        for start in range(KEY_BLOCK, keys.shape[0], KEY_BLOCK):
            block_most, block_total, block_out = _block(
                q, keys[start : start + KEY_BLOCK], values[start : start + KEY_BLOCK], rounded
            )
            new_most = np.maximum(most, block_most)
            alpha, beta = exp32(most - new_most), exp32(block_most - new_most)
            total = fma32(total, alpha, block_total * beta)
            out = fma32(out, alpha[:, None], block_out * beta[:, None])
            most = new_most
        return out / total[:, None]


def _block(q: F32, keys: F32, values: F32, rounded: bool) -> tuple[F32, F32, F32]:
    """Return the maximum (H,), the sum of exponentials (H,) and the weighted values (H, D) of one block."""
    count, heads, dim = keys.shape
    scale = np.float32(1) / np.sqrt(np.float32(dim))
    scores = np.zeros((count, heads), np.float32)
    for d in range(dim):
        scores = fma32(q[None, :, d], keys[:, :, d], scores)
    with np.errstate(all="ignore"):
        scores = scores * scale
        most = np.max(scores, axis=0)
        p = exp32(scores - most)
        lanes = np.zeros((heads, LANES), np.float32)
        for j in range(count):
            lanes[:, j % LANES] = lanes[:, j % LANES] + p[j]
    weights = bf16_round(p) if rounded else p
    out = np.zeros((heads, dim), np.float32)
    for j in range(count):
        out = fma32(weights[j, :, None], values[j], out)
    return most, lanes16_tree(lanes), out + np.float32(0)  # −0 becomes +0
