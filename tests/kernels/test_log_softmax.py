"""Log-softmax: every path gives the bits of the reference."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samebits.kernels import reference
from samebits.numerics import first_difference


def run(kernels: ModuleType, ctx: Any, logits: np.ndarray) -> np.ndarray:
    out = np.full(logits.shape, np.nan, np.float32)
    kernels.log_softmax(ctx, logits, out)
    return out


@pytest.mark.parametrize("vocab", [1, 2, 15, 16, 17, 33, 255, 256, 257, 271, 272, 511, 512, 513, 1000, 5000])
def test_every_remainder(
    vocab: int,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
    misaligned: Callable[..., np.ndarray],
) -> None:
    logits = np.random.default_rng(vocab).standard_normal((5, vocab), dtype=np.float32) * np.float32(6)
    logits = misaligned(logits)
    expected = reference.log_softmax(logits)
    for rows in (1, 2, 5):
        same_on_every_path(lambda ctx, r=rows: run(kernels, ctx, logits[:r]), expected[:rows].copy())
    columns = np.random.default_rng(1).integers(0, vocab, (5, 7)).astype(np.int32)
    columns[:, 0], columns[:, 1] = vocab - 1, 0
    same_on_every_path(
        lambda ctx: kernels.log_softmax_at(ctx, logits, columns), np.take_along_axis(expected, columns, axis=1)
    )


def test_extreme_values(
    kernels: ModuleType, same_on_every_path: Callable[..., None], extreme: Callable[..., np.ndarray]
) -> None:
    rng = np.random.default_rng(4)
    logits = np.stack([rng.standard_normal(300) * 10 for _ in range(10)]).astype(np.float32)
    logits[0] = 0
    logits[1] = rng.choice(np.float32([0.0, -0.0]), 300)
    logits[2, 7] = 200  # all others vanish: log(1) is +0
    logits[3] = np.float32(-1e38)
    logits[4] = extreme(rng, (300,))
    logits[5, ::3] = -np.inf  # ids excluded by a constraint
    logits[6, 9], logits[7, 9], logits[8, 299] = np.nan, np.inf, np.nan
    logits[9] = np.linspace(-88, 0, 300)
    expected = reference.log_softmax(logits)
    assert np.isnan(expected[6:9]).all()
    same_on_every_path(lambda ctx: run(kernels, ctx, logits), expected)
    columns = np.tile(np.array([299, 9, 7, 0, 3], np.int32), (10, 1))
    same_on_every_path(
        lambda ctx: kernels.log_softmax_at(ctx, logits, columns), np.take_along_axis(expected, columns, axis=1)
    )


def test_columns_outside_the_vocabulary_are_refused(kernels: ModuleType, contexts: list[Any]) -> None:
    logits = np.zeros((2, 5), np.float32)
    for bad in ([[5], [0]], [[0], [-1]]):
        with pytest.raises(ValueError, match="columns: outside"):
            kernels.log_softmax_at(contexts[0], logits, np.array(bad, np.int32))
    with pytest.raises(ValueError, match="columns, out"):
        kernels.log_softmax_at(contexts[0], logits, np.zeros((3, 1), np.int32))
    assert kernels.log_softmax_at(contexts[0], logits, np.zeros((2, 0), np.int32)).shape == (2, 0)


def test_close_to_binary64(kernels: ModuleType, contexts: list[Any]) -> None:
    """The bound follows the roundings, in u = 2^-24; |l − M| < 8 and |result| < 16."""
    logits = np.random.default_rng(5).standard_normal((4, 1000), dtype=np.float32)
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
    error = np.abs(run(kernels, contexts[-1], logits) - exact)
    difference, log, result = 8, 8, 16  # each rounded once
    total = difference + 2 + (256 // 16 + 4) + 3  # S, relative: its arguments, exp, lanes and tree, four blocks
    assert error.max() < 2.0**-24 * (difference + total + log + result)


def test_negative_control_other_orders_are_told_apart(kernels: ModuleType, contexts: list[Any]) -> None:
    logits = np.random.default_rng(6).standard_normal((256, 1000), dtype=np.float32)
    shifted = logits - logits.max(axis=1, keepdims=True)
    other = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    assert first_difference(run(kernels, contexts[-1], logits), other.astype(np.float32)) is not None
