"""Embedding: every path gives the bits of the reference."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samebits.kernels import reference
from samebits.numerics import PROFILES, Profile, first_difference


def embed(kernels: ModuleType, ctx: Any, profile: Profile, ids: np.ndarray, w: np.ndarray) -> np.ndarray:
    packed = kernels.PackedMatrix(profile, *w.shape)
    packed.set_rows(ctx, 0, w)
    out = np.full((ids.size, w.shape[1]), np.nan, np.float32)
    kernels.embedding(ctx, ids, packed, out)
    return out


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 33, 64, 65, 513])
def test_every_remainder(
    profile: Profile, width: int, kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    rng = np.random.default_rng(width)
    w = rng.standard_normal((37, width), dtype=np.float32)
    for ids in ([0], [36, 0, 36, 15, 16, 17], list(range(37))):
        tokens = np.array(ids, np.int32)
        expected = reference.embedding(tokens, w, profile)
        same_on_every_path(lambda ctx, t=tokens: embed(kernels, ctx, profile, t, w), expected, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_extreme_values(
    profile: Profile,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
    extreme: Callable[..., np.ndarray],
) -> None:
    w = extreme(np.random.default_rng(7), (20, 30))
    w[3] = 0
    w[4] = np.float32(1e-45)
    ids = np.arange(20, dtype=np.int32)
    same_on_every_path(lambda ctx: embed(kernels, ctx, profile, ids, w), reference.embedding(ids, w, profile), profile)


def test_profiles_are_told_apart(kernels: ModuleType, contexts: list[Any]) -> None:
    w, ids = (
        np.random.default_rng(1).standard_normal((20, 30), dtype=np.float32),
        np.arange(20, dtype=np.int32),
    )
    rows = {profile: embed(kernels, contexts[-1], profile, ids, w) for profile in PROFILES}
    assert first_difference(rows["fp32"], w) is None
    assert first_difference(rows["bf16"], w) is not None
    assert first_difference(rows["int8"], rows["bf16"]) is not None
