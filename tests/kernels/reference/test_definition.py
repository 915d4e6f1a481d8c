"""The references themselves: against binary64 within derived bounds, and the claim of invariance, by bits."""

from __future__ import annotations

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

U = 2.0**-24


def gamma(roundings: int) -> float:
    """n·u / (1 − n·u): the relative error of n roundings (Higham, Accuracy and Stability, lemma 3.1)."""
    return roundings * U / (1 - roundings * U)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("k", [1, 3, 512, 513, 1100])
def test_linear_is_a_chain_of_blocks_of_512(k: int) -> None:
    """Written out for one element with products that are exact in binary64, rounding each step once."""
    x, w = (
        bf16_round(normal(1, 1, k)),
        bf16_round(normal(2, 1, k)),
    )  # 16-bit products: a step is one binary64 sum
    blocks = []
    for start in range(0, k, 512):
        acc = np.float32(0)
        for i in range(start, min(start + 512, k)):
            # A product of 16 bits and a float differ by too few binades here for the binary64 sum to round.
            acc = np.float32(np.float64(x[0, i]) * np.float64(w[0, i]) + np.float64(acc))
        blocks.append(acc)
    y = blocks[0]
    for block in blocks[1:]:
        y = y + block
    assert_bitwise_equal(reference.linear(x, w, "fp32"), np.array([[y]], np.float32))
    assert_bitwise_equal(reference.linear(x, w, "bf16"), np.array([[y]], np.float32))


@pytest.mark.parametrize("profile", PROFILES)
def test_linear_rows_and_columns_do_not_see_each_other(profile: Profile) -> None:
    x, w = normal(3, 9, 600), normal(4, 20, 600)
    whole = reference.linear(x, w, profile)
    for m, n in ((0, 0), (4, 19), (8, 7)):
        assert_bitwise_equal(reference.linear(x[m : m + 1], w[n : n + 1], profile), whole[m : m + 1, n : n + 1])
    assert first_difference((x[:1] @ w.T), whole[:1]) is not None, "the vendor's order is another"


@pytest.mark.parametrize("profile", ["fp32", "bf16"])
def test_linear_bound(profile: Profile) -> None:
    x, w = normal(5, 6, 1100), normal(6, 30, 1100)
    a, b = (bf16_round(x), bf16_round(w)) if profile == "bf16" else (x, w)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64).T
    error = np.abs(reference.linear(x, w, profile) - exact)
    assert (error <= gamma(512 + 2) * size + 1100 * 2.0**-53 * size).all()


def test_int8_quantisation() -> None:
    x = normal(7, 50, 64)
    q = reference.quantize(x)
    greatest = np.abs(x).max(axis=1)
    assert (np.abs(q.values).max(axis=1) == 127).all()
    # Half a step for rounding to an integer; scale, inverse and product round once each, on at most 127.
    error = np.abs(q.values * q.scale[:, None].astype(np.float64) - x)
    assert (error <= (0.5 + 127 * gamma(3)) * greatest[:, None] / 127).all()
    odd = np.float32([[127, 0.5, 1.5, -0.5, -1.5, 2.5]])
    assert reference.quantize(odd).values.tolist() == [[127, 0, 2, 0, -2, 2]], "ties to even"
    small = np.float32([[2.0**-100, 0], [np.nextafter(np.float32(2.0**-100), np.float32(0)), 0], [0, 0]])
    assert reference.quantize(small).values.tolist() == [[127, 0], [0, 0], [0, 0]]
    assert (reference.quantize(small).scale > 0).tolist() == [True, False, False]
    assert np.isnan(reference.quantize(np.float32([[np.inf, 1]])).scale).all()


def test_int8_block_at_its_greatest() -> None:
    ones = np.ones((1, INT8_BLOCK), np.float32)
    scale = np.float32(1) / np.float32(127)
    expected = np.float32(INT8_BLOCK * 127 * 127) * scale * scale
    assert_bitwise_equal(reference.linear(ones, ones, "int8"), np.array([[expected]], np.float32))


@pytest.mark.parametrize("profile", ["fp32", "bf16"])
def test_attention_against_binary64(profile: Profile) -> None:
    q, k, v = normal(8, 3, 4, 64), normal(9, 600, 2, 64), normal(10, 600, 2, 64)
    positions = np.array([4, 300, 599], np.int32)
    got = reference.attention(q, k, v, positions, profile)
    if profile == "bf16":
        q, k, v = bf16_round(q), bf16_round(k), bf16_round(v)
    for t, p in enumerate(positions):
        keys, values = (np.repeat(a[: p + 1], 2, axis=1).astype(np.float64) for a in (k, v))
        score = np.einsum("hd,lhd->hl", q[t].astype(np.float64), keys) / 8
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        exact = np.einsum("hl,lhd->hd", weight, values)
        size = np.einsum("hl,lhd->hd", weight, np.abs(values))
        # A score is off by γ(66)·Σ|q||k|/8, so is its weight relatively, above and below the fraction;
        # exp, the chain over at most 256 keys, two combinations and the division add their roundings.
        scores_off = gamma(66) * np.einsum("hd,lhd->hl", np.abs(q[t]).astype(np.float64), np.abs(keys)).max() / 8
        bound = 2 * (2 * scores_off) + gamma(2 * (2 + 256 + 2 * 4 + 2)) + (2.0**-8 if profile == "bf16" else 0)
        assert (np.abs(got[t] - exact) <= bound * size).all()


@pytest.mark.parametrize("profile", PROFILES)
def test_attention_rows_do_not_see_each_other_or_later_keys(profile: Profile) -> None:
    q, k, v = normal(11, 300, 2, 8), normal(12, 300, 1, 8), normal(13, 300, 1, 8)
    positions = np.arange(300, dtype=np.int32)
    whole = reference.attention(q, k, v, positions, profile)
    for p in (0, 15, 255, 256, 299):
        alone = reference.attention(q[p : p + 1], k[: p + 1], v[: p + 1], positions[p : p + 1], profile)
        assert_bitwise_equal(alone, whole[p : p + 1])


def test_rmsnorm_rotation_silu_and_log_softmax_against_binary64() -> None:
    x, weight = normal(14, 5, 576), normal(15, 576)
    exact = x.astype(np.float64)
    exact = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + np.float32(1e-5)) * weight
    # 36 + 4 steps of the sum, ÷ and + (half of each survives the root), root, reciprocal, two products.
    assert (np.abs(reference.rmsnorm(x, weight, 1e-5) - exact) <= gamma(42 // 2 + 4) * np.abs(exact)).all()

    angle = np.linspace(0, 3, 8, dtype=np.float32)[None]
    c, s = np.cos(angle), np.sin(angle)
    head = normal(16, 1, 1, 16)
    a, b = head[0, 0, :8].astype(np.float64), head[0, 0, 8:].astype(np.float64)
    turned = np.concatenate([a * c[0] - b * s[0], b * c[0] + a * s[0]])
    size = np.concatenate([np.abs(a * c[0]) + np.abs(b * s[0]), np.abs(b * c[0]) + np.abs(a * s[0])])
    assert (np.abs(reference.rotate(head, c, s)[0, 0] - turned) <= gamma(2) * size).all()

    gate_up = normal(17, 20, 64) * np.float32(10)
    gate, up = gate_up[:, :32].astype(np.float64), gate_up[:, 32:].astype(np.float64)
    silu = gate / (1 + np.exp(-gate)) * up
    assert (np.abs(reference.silu_mul(gate_up) - silu) <= gamma(5) * np.abs(silu)).all()


def test_embedding_in_each_profile() -> None:
    w, ids = normal(18, 10, 33), np.array([9, 0, 9], np.int32)
    assert_bitwise_equal(reference.embedding(ids, w, "fp32"), w[ids])
    assert_bitwise_equal(reference.embedding(ids, w, "bf16"), bf16_round(w[ids]))
    q = reference.quantize(w)
    assert_bitwise_equal(reference.embedding(ids, w, "int8"), (q.values.astype(np.float32) * q.scale[:, None])[ids])
