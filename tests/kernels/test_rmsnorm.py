"""RMSNorm: every path gives the bits of the reference."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samebits.kernels import reference
from samebits.numerics import first_difference


def norm(kernels: ModuleType, ctx: Any, x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    out = np.full(x.shape, np.nan, np.float32)
    kernels.rmsnorm(ctx, x, weight, eps, out)
    return out


@pytest.mark.parametrize("width", [*range(1, 19), 31, 32, 33, 48, 63, 64, 65, 100, 576, 1100])
def test_every_remainder(
    width: int,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
    misaligned: Callable[..., np.ndarray],
) -> None:
    rng = np.random.default_rng(width)
    x = misaligned(rng.standard_normal((17, width), dtype=np.float32))
    weight = misaligned(rng.standard_normal(width, dtype=np.float32))
    expected = reference.rmsnorm(x, weight, 1e-5)
    for rows in (1, 2, 9, 17):
        same_on_every_path(lambda ctx, r=rows: norm(kernels, ctx, x[:r], weight, 1e-5), expected[:rows].copy())


def test_extreme_values(
    kernels: ModuleType, same_on_every_path: Callable[..., None], extreme: Callable[..., np.ndarray]
) -> None:
    rng = np.random.default_rng(2)
    x, weight = extreme(rng, (12, 50)), extreme(rng, (50,))
    x[0], x[1], x[2] = 0, 1e-45, np.float32(1e-25) * rng.standard_normal(50).astype(np.float32)
    x[3] = rng.choice(np.float32([3e38, -3e38]), 50)  # squares overflow: 1 ÷ ∞ is 0, and so is the row
    for eps in (1e-5, 1e-6, 0.0, 1e-45):
        expected = reference.rmsnorm(x, weight, eps)
        same_on_every_path(lambda ctx, e=eps: norm(kernels, ctx, x, weight, e), expected, f"eps={eps}")


@given(rows=st.integers(1, 5), width=st.integers(1, 80), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_small_shape(
    rows: int, width: int, seed: int, kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    rng = np.random.default_rng(seed)
    x = np.ldexp(rng.standard_normal((rows, width)), rng.integers(-70, 60, (rows, 1))).astype(np.float32)
    weight = rng.standard_normal(width, dtype=np.float32)
    expected = reference.rmsnorm(x, weight, 1e-6)
    same_on_every_path(lambda ctx: norm(kernels, ctx, x, weight, 1e-6), expected)


def test_negative_control_other_orders_are_told_apart(kernels: ModuleType, contexts: list[Any]) -> None:
    x = np.random.default_rng(6).standard_normal((64, 576), dtype=np.float32)
    weight = np.ones(576, np.float32)
    y = norm(kernels, contexts[-1], x, weight, 1e-5)
    pairwise = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(1e-5))
    eight_lanes = np.sum((x * x).reshape(64, 72, 8), axis=1, dtype=np.float32).sum(axis=1)
    eight = (x * (1 / np.sqrt(eight_lanes / np.float32(576) + np.float32(1e-5)))[:, None]).astype(np.float32)
    assert first_difference(y, pairwise) is not None
    assert first_difference(y, eight) is not None
