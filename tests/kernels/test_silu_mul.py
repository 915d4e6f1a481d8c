"""silu(gate) · up: every path gives the bits of the reference."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samebits.kernels import reference
from samebits.numerics import first_difference


def silu(kernels: ModuleType, ctx: Any, gate_up: np.ndarray) -> np.ndarray:
    out = np.full((gate_up.shape[0], gate_up.shape[1] // 2), np.nan, np.float32)
    kernels.silu_mul(ctx, gate_up, out)
    return out


@pytest.mark.parametrize("width", [*range(1, 19), 31, 32, 33, 64, 65, 100, 1536])
def test_every_remainder(
    width: int,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
    misaligned: Callable[..., np.ndarray],
) -> None:
    gate_up = np.random.default_rng(width).standard_normal((17, 2 * width), dtype=np.float32) * np.float32(8)
    gate_up = misaligned(gate_up)
    expected = reference.silu_mul(gate_up)
    for rows in (1, 3, 17):
        same_on_every_path(lambda ctx, r=rows: silu(kernels, ctx, gate_up[:r]), expected[:rows].copy())


def test_every_binade_of_the_gate(kernels: ModuleType, same_on_every_path: Callable[..., None]) -> None:
    """All signs and exponents, with significands that reach every branch of exp."""
    rng = np.random.default_rng(1)
    bits = (np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23)) | rng.integers(0, 2**23, (512, 40), np.uint32)
    gate = bits.view(np.float32)[np.arange(512) % 256 != 255]
    ends = np.float32([0.0, -0.0, 87.0, -87.0, 88.0, -88.0, 88.00001, -88.00001, 87.00001, -87.00001])
    ends = np.concatenate([np.nextafter(ends, np.float32(1e9)), ends, np.nextafter(ends, np.float32(-1e9)), ends])
    gate = np.concatenate([gate, ends.reshape(1, 40)])
    gate_up = np.concatenate([gate, np.ones_like(gate)], axis=1)
    same_on_every_path(lambda ctx: silu(kernels, ctx, gate_up), reference.silu_mul(gate_up))


def test_extreme_values(
    kernels: ModuleType, same_on_every_path: Callable[..., None], extreme: Callable[..., np.ndarray]
) -> None:
    gate_up = extreme(np.random.default_rng(2), (40, 94))
    expected = reference.silu_mul(gate_up)
    assert not np.isfinite(expected).all()
    same_on_every_path(lambda ctx: silu(kernels, ctx, gate_up), expected)


def test_negative_control_the_exp_of_a_library_is_told_apart(kernels: ModuleType, contexts: list[Any]) -> None:
    gate_up = np.random.default_rng(3).standard_normal((64, 200), dtype=np.float32)
    gate, up = gate_up[:, :100], gate_up[:, 100:]
    library = (gate / (1 + np.exp(-gate.astype(np.float64))).astype(np.float32)) * up
    assert first_difference(silu(kernels, contexts[-1], gate_up), library) is not None
