"""Argmax and top-k: the order is logit descending, id ascending, on every path."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samebits.kernels import reference


def rows_of(vocab: int) -> np.ndarray:
    rng = np.random.default_rng(vocab)
    logits = rng.standard_normal((6, vocab)).astype(np.float32)
    logits[1] = rng.integers(-2, 3, vocab)  # many ties
    logits[2] = rng.choice(np.float32([0.0, -0.0]), vocab)  # zeros of both signs are ties
    logits[3] = -np.inf
    logits[3, vocab // 2] = -5
    logits[4] = np.arange(vocab)
    logits[5] = -np.arange(vocab, dtype=np.float32)
    return logits


@pytest.mark.parametrize("vocab", [1, 2, 3, 15, 16, 17, 33, 64, 100, 1000, 4099])
def test_argmax_and_topk(vocab: int, kernels: ModuleType, same_on_every_path: Callable[..., None]) -> None:
    logits = rows_of(vocab)
    same_on_every_path(lambda ctx: kernels.argmax(ctx, logits), reference.argmax(logits), f"argmax V={vocab}")
    for k in sorted({1, 2, 5, 17, vocab - 1, vocab} & set(range(1, vocab + 1))):
        expected = reference.topk(logits, k)
        same_on_every_path(lambda ctx, k=k: kernels.topk(ctx, logits, k)[0], expected.ids, f"ids V={vocab} k={k}")
        same_on_every_path(lambda ctx, k=k: kernels.topk(ctx, logits, k)[1], expected.values, f"V={vocab} k={k}")


def test_ties_go_to_the_lowest_id_wherever_they_lie(kernels: ModuleType, contexts: list[Any]) -> None:
    for first, second in [(0, 1), (15, 16), (17, 301), (255, 256), (998, 999), (0, 999)]:
        logits = np.full((1, 1000), -10, np.float32)
        logits[0, [first, second]] = 21.375
        for ctx in contexts:
            assert kernels.argmax(ctx, logits).tolist() == [first]
            assert kernels.topk(ctx, logits, 3)[0].tolist() == [[first, second, 0 if first else 1 + (second == 1)]]


def test_negative_control_an_unstable_order_is_told_apart() -> None:
    logits = rows_of(1000)
    unstable = np.argsort(logits, axis=1)[:, ::-1][:, :17]
    assert (unstable != reference.topk(logits, 17).ids).any()
