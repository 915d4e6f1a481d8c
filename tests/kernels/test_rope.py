"""Rotary embedding and its tables: every path gives the bits of the reference."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samebits.kernels import reference
from samebits.numerics import PROFILES, Profile, first_difference, rope_tables


def inverse_frequencies(dim: int) -> np.ndarray:
    return (10_000.0 ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)


def rotated_queries(
    kernels: ModuleType, ctx: Any, profile: Profile, qkv: np.ndarray, positions: np.ndarray, kv: int, dim: int
) -> np.ndarray:
    """Store `qkv` at the slots of its positions and return the rotated queries (T, H, D)."""
    heads = qkv.shape[1] // dim - 2 * kv
    tables = rope_tables(inverse_frequencies(dim), int(positions.max()) + 1)
    cache = kernels.KvCache(profile, 1, int(positions.max()) // 16 + 1, 16, kv, dim)
    out = np.full((positions.size, heads * dim), np.nan, np.float32)
    slots = positions.astype(np.int64)
    kernels.rope_store(ctx, qkv, positions, slots, tables.cos, tables.sin, cache, 0, out)
    return out.reshape(-1, heads, dim)


def expected_queries(qkv: np.ndarray, positions: np.ndarray, kv: int, dim: int) -> np.ndarray:
    tables = rope_tables(inverse_frequencies(dim), int(positions.max()) + 1)
    heads = qkv.shape[1] // dim - 2 * kv
    q = np.ascontiguousarray(qkv.reshape(-1, heads + 2 * kv, dim)[:, :heads])
    return reference.rotate(q, tables.cos[positions], tables.sin[positions])


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("heads", "kv", "dim"), [(1, 1, 2), (3, 1, 6), (4, 2, 32), (9, 3, 64), (2, 1, 80), (2, 2, 34)])
def test_every_remainder(
    profile: Profile,
    heads: int,
    kv: int,
    dim: int,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
    misaligned: Callable[..., np.ndarray],
) -> None:
    rng = np.random.default_rng(dim)
    qkv = misaligned(rng.standard_normal((19, (heads + 2 * kv) * dim), dtype=np.float32))
    positions = rng.permutation(700)[:19].astype(np.int32)
    expected = expected_queries(qkv, positions, kv, dim)
    for rows in (1, 8, 9, 19):
        same_on_every_path(
            lambda ctx, r=rows: rotated_queries(kernels, ctx, profile, qkv[:r], positions[:r], kv, dim),
            expected[:rows].copy(),
        )


def test_extreme_values(
    kernels: ModuleType, same_on_every_path: Callable[..., None], extreme: Callable[..., np.ndarray]
) -> None:
    qkv, positions = extreme(np.random.default_rng(1), (16, 3 * 38)), np.arange(16, dtype=np.int32)
    expected = expected_queries(qkv, positions, 1, 38)
    same_on_every_path(lambda ctx: rotated_queries(kernels, ctx, "fp32", qkv, positions, 1, 38), expected)


def test_negative_control_two_roundings_are_told_apart(kernels: ModuleType, contexts: list[Any]) -> None:
    qkv = np.random.default_rng(2).standard_normal((16, 3 * 64), dtype=np.float32)
    positions = np.arange(1, 17, dtype=np.int32)
    got = rotated_queries(kernels, contexts[-1], "fp32", qkv, positions, 1, 64)
    tables = rope_tables(inverse_frequencies(64), 17)
    cos, sin = tables.cos[positions], tables.sin[positions]
    first, second = qkv[:, :32], qkv[:, 32:64]
    plain = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)[:, None]
    assert first_difference(got, plain) is not None
