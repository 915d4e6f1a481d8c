"""Rounding to bf16 outside the kernels (docs/numerics.md 1.1): what the vendor row of the demo rounds with."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from samebits.numerics import assert_bitwise_equal, bf16_round, first_difference


def test_every_kind_of_float_in_place_and_not(kernels: ModuleType) -> None:
    patterns = np.arange(0, 1 << 32, 65_521, dtype=np.uint64).astype(
        np.uint32
    )  # a prime step: all exponents, both signs
    halves = (np.arange(1 << 16, dtype=np.uint32) << 16) | 0x8000  # every tie
    x = np.concatenate([patterns, halves]).view(np.float32)[None]
    expected = bf16_round(x)
    out = np.empty_like(x)
    kernels.round_bf16(x, out)
    assert_bitwise_equal(out, expected)
    kernels.round_bf16(x, x)
    assert_bitwise_equal(x, expected, "in place")


def test_negative_control_truncation_is_told_apart(kernels: ModuleType) -> None:
    x = np.random.default_rng(1).standard_normal((4, 33)).astype(np.float32)
    out = np.empty_like(x)
    kernels.round_bf16(x, out)
    assert first_difference((x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32), out) is not None
