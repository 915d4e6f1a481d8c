"""Linear layers: every path gives the bits of the reference."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samebits.kernels import reference
from samebits.numerics import (
    INT8_BLOCK,
    PROFILES,
    Profile,
    assert_bitwise_equal,
    bf16_round,
    first_difference,
)

M_ALL = (*range(1, 14), 16, 17, 33, 64)
N_ALL = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100)
K_ALL = (1, 2, 3, 4, 5, 15, 16, 17, 511, 512, 513, 1024, 1100)
# Rows and columns of the result do not see each other (the claim), so one reference serves every M and N.
SHAPES = {k: [(m, n) for m in M_ALL for n in N_ALL] for k in (17, 513)} | {
    k: [(m, n) for m in (1, 5, 13, 33) for n in (1, 17, 100)] for k in K_ALL if k not in (17, 513)
}


def multiply(kernels: ModuleType, ctx: Any, profile: Profile, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    packed = kernels.PackedMatrix(profile, *w.shape)
    packed.set_rows(ctx, 0, w)
    out = np.full((x.shape[0], w.shape[0]), np.nan, np.float32)
    kernels.linear(ctx, x, packed, out)
    return out


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("k", K_ALL)
def test_every_remainder(
    profile: Profile, k: int, kernels: ModuleType, contexts: list[Any], misaligned: Callable[..., np.ndarray]
) -> None:
    rng = np.random.default_rng(k)
    x = misaligned(rng.standard_normal((max(M_ALL), k), dtype=np.float32))
    w = misaligned(rng.standard_normal((max(N_ALL), k), dtype=np.float32))
    expected = reference.linear(x, w, profile)
    for ctx in contexts:
        for n in sorted({n for _, n in SHAPES[k]}):
            packed = kernels.PackedMatrix(profile, n, k)
            packed.set_rows(ctx, 0, w[:n])
            for m in (m for m, other in SHAPES[k] if other == n):
                out = misaligned(np.full((m, n), np.nan, np.float32))
                kernels.linear(ctx, x[:m], packed, out)
                name = f"M={m} N={n} K={k} {profile} isa={ctx.isa} threads={ctx.threads}"
                assert_bitwise_equal(out, np.ascontiguousarray(expected[:m, :n]), name)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("m", "n", "k"), [(13, 33, 37), (5, 17, 520), (64, 20, 2)])
def test_extreme_values(
    profile: Profile,
    m: int,
    n: int,
    k: int,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
    extreme: Callable[..., np.ndarray],
) -> None:
    rng = np.random.default_rng(m)
    x, w = extreme(rng, (m, k)), extreme(rng, (n, k))
    x[1] = 0
    w[2] = 0
    x[2] = np.where(rng.random(k) < 0.5, np.float32(1e-45), np.float32(-0.0))
    x[3], w[3] = np.float32(3e38), rng.choice(np.float32([3e38, -3e38]), k)
    x[4], w[4] = np.float32(2.0**-55), rng.choice(np.float32([2.0**-55, -(2.0**-56), 2.0**-54]), k)
    expected = reference.linear(x, w, profile)
    assert profile == "int8" or not np.isfinite(expected).all(), "nothing overflowed"
    same_on_every_path(lambda ctx: multiply(kernels, ctx, profile, x, w), expected, profile)


def test_a_sum_that_rounds_to_minus_zero_keeps_its_sign(
    kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    for k in (1, 3, 512, 513, 1100):
        x, w = np.full((3, k), np.float32(1e-30)), np.full((17, k), np.float32(-1e-30))
        expected = reference.linear(x, w, "fp32")
        assert np.signbit(expected).all()
        assert not expected.any()
        same_on_every_path(lambda ctx, x=x, w=w: multiply(kernels, ctx, "fp32", x, w), expected, f"K={k}")


def test_bf16_inputs_are_rounded_to_even_and_flushed(
    kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    """A product with the unit matrix shows each operand as the kernel rounds it, on both sides."""
    scale = np.ldexp(np.float32(1), np.arange(-60, -40, dtype=np.int32))
    x = (scale[:, None] * np.float32(1 + np.arange(-6, 6)[None, :] * 2.0**-9)).astype(np.float32)
    unit = np.eye(12, dtype=np.float32)
    same_on_every_path(lambda ctx: multiply(kernels, ctx, "bf16", x, unit), bf16_round(x), "input")
    same_on_every_path(lambda ctx: multiply(kernels, ctx, "bf16", unit, x), bf16_round(x).T.copy(), "weight")


def test_int8_rows_of_zeros_tiny_rows_and_rows_that_are_not_finite(
    kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    rng = np.random.default_rng(8)
    x, w = rng.standard_normal((9, 70), dtype=np.float32), rng.standard_normal((18, 70), dtype=np.float32)
    x[1], w[4] = 0, 0
    x[2] *= np.float32(2.0**-110)
    x[3] = np.where(np.arange(70) == 3, np.float32(2.0**-100), np.float32(2.0**-107))
    x[4, 69], x[5, 0], x[6, 17] = np.inf, np.nan, -np.inf
    x[7] = np.arange(70) - 35 + np.float32(0.5)  # halves: ties to even
    x[7, 0] = 127
    expected = reference.linear(x, w, "int8")
    assert np.isnan(expected[4:7]).all()
    assert not expected[1:3].any()
    same_on_every_path(lambda ctx: multiply(kernels, ctx, "int8", x, w), expected)


def test_int8_scales_belong_to_blocks(kernels: ModuleType, same_on_every_path: Callable[..., None]) -> None:
    """An outlier coarsens its own 128 inputs only; sums of a full block at their greatest are exact."""
    rng = np.random.default_rng(11)
    x, w = rng.standard_normal((3, 400), dtype=np.float32), rng.standard_normal((20, 400), dtype=np.float32)
    x[0, 130] = 1e6
    x[1], w[3] = 1, 1
    expected = reference.linear(x, w, "int8")
    same_on_every_path(lambda ctx: multiply(kernels, ctx, "int8", x, w), expected)
    assert abs(float(expected[1, 3]) - 400) < 400 * 2.0**-20
    whole = reference.quantize(x[:1, :128])
    assert (np.abs(whole.values).max(axis=1) == 127).all(), "the outlier of another block reached this one"


@pytest.mark.parametrize("profile", PROFILES)
def test_error_is_within_the_bound_of_the_order(profile: Profile, kernels: ModuleType, contexts: list[Any]) -> None:
    """|y − exact| ≤ γ · Σ|x||w|, γ = n·u / (1 − n·u), with n roundings on the way of one product."""
    rng = np.random.default_rng(9)
    x, w = rng.standard_normal((6, 1100), dtype=np.float32), rng.standard_normal((40, 1100), dtype=np.float32)
    y = multiply(kernels, contexts[-1], profile, x, w).astype(np.float64)
    if profile == "int8":
        channels = reference.quantize(w)
        blocks = [reference.quantize(x[:, k : k + INT8_BLOCK]) for k in range(0, 1100, INT8_BLOCK)]
        a = np.concatenate([b.values.astype(np.float64) * b.scale[:, None] for b in blocks], axis=1)
        b = channels.values.astype(np.float64) * channels.scale[:, None]
        exact = a @ b.T
        size, roundings = np.abs(a) @ np.abs(b).T, len(blocks) + 1  # one fma a block, then × t; sums are exact
    else:
        a, b = (bf16_round(x), bf16_round(w)) if profile == "bf16" else (x, w)
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        size, roundings = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T, 512 + 2
    gamma = roundings * 2.0**-24 / (1 - roundings * 2.0**-24)
    slack = 1100 * 2.0**-53 * size  # of the binary64 computation
    assert (np.abs(y - exact) <= gamma * size + slack).all()


def test_negative_control_other_orders_are_told_apart(kernels: ModuleType, contexts: list[Any]) -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((8, 1100), dtype=np.float32), rng.standard_normal((48, 1100), dtype=np.float32)
    y = multiply(kernels, contexts[-1], "fp32", x, w)
    by_count = sum(reference.linear(x[:, i : i + 275], w[:, i : i + 275], "fp32") for i in range(0, 1100, 275))
    pairwise = np.stack([np.sum(x * row, axis=1) for row in w], axis=1)
    descending = reference.linear(x[:, ::-1], w[:, ::-1], "fp32")
    for name, other in (
        ("K cut in 4", by_count),
        ("pairwise", pairwise),
        ("vendor", x @ w.T),
        ("k down", descending),
    ):
        difference = first_difference(y, np.asarray(other, np.float32))
        assert difference is not None, f"{name} was not told apart"
        assert difference.differing > y.size // 20, name
