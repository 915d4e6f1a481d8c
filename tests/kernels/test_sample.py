"""Sampling: every path draws what the reference draws."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samebits.kernels import reference
from samebits.kernels.reference.sample import weights
from samebits.numerics import assert_bitwise_equal, first_difference

# temperature, top_k, top_p, min_p
SETTINGS = [
    (1.0, 0, 1.0, 0.0),
    (0.7, 40, 1.0, 0.0),
    (1.3, 0, 0.9, 0.0),
    (1.0, 0, 1.0, 0.1),
    (0.8, 50, 0.95, 0.05),
    (5.0, 3, 0.5, 0.5),
    (0.01, 0, 1.0, 0.0),
    (100.0, 0, 0.999999, 1e-9),
    (0.0, 0, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, 0, 1e-12, 1.0),
    (1e-5, 0, 1.0, 0.0),
    (1e-40, 7, 0.5, 0.0),
]


def draw(kernels: ModuleType, ctx: Any, logits: np.ndarray, *draw: Any) -> int:
    """One row."""
    return int(kernels.sample(ctx, logits[None], [kernels.Draw(*draw)])[0])


@pytest.mark.parametrize("vocab", [1, 2, 17, 300, 1000])
@pytest.mark.parametrize("parameters", SETTINGS)
def test_same_draw(
    parameters: tuple[float, int, float, float], vocab: int, kernels: ModuleType, contexts: list[Any]
) -> None:
    logits = (np.random.default_rng(vocab).standard_normal(vocab) * 4).astype(np.float32)
    logits[vocab // 2] = logits.max()  # a tie
    logits[::7] = np.where(logits[::7] == logits.max(), logits[::7], -np.inf)  # excluded ids
    for seed, token, choice in [(0, 0, 0), (-1, 3, 0), (2**63 - 1, 0, 5), (-(2**63), 1000, 1), (42, 1, 0)]:
        expected = reference.sample(logits, *parameters, seed, token, choice)
        drawn = {draw(kernels, ctx, logits, *parameters, seed, token, choice) for ctx in contexts}
        assert drawn == {expected}


def many_rows(vocab: int) -> tuple[np.ndarray, list[tuple[Any, ...]]]:
    """Flat, peaked, tied, huge, denormal and partly excluded rows, each with every setting."""
    rng = np.random.default_rng(vocab)
    normal = rng.standard_normal(vocab)
    kinds = [normal, normal * 8, rng.random(vocab) * 0.1, rng.integers(0, 3, vocab), np.zeros(vocab)]
    kinds += [np.clip(normal * 1e38, -3e38, 3e38), normal * 1e-42]
    kinds.append(np.where(rng.random(vocab) < 0.7, -np.inf, normal))
    kinds[-1][0] = 0
    rows = np.repeat(np.array(kinds, np.float32), len(SETTINGS), axis=0)
    draws = [(*parameters, i, i % 5, i % 3) for i, parameters in enumerate(SETTINGS * len(kinds))]
    return rows, draws


@pytest.mark.parametrize("vocab", [1, 65, 3000])
def test_rows_at_once_and_alone(vocab: int, kernels: ModuleType, contexts: list[Any]) -> None:
    """Case S01: what is drawn from a row depends on that row alone, whoever computes it."""
    rows, draws = many_rows(vocab)
    expected = np.array([reference.sample(row, *d) for row, d in zip(rows, draws, strict=True)], np.int32)
    order = np.random.default_rng(0).permutation(len(draws))
    for ctx in contexts:
        got = kernels.sample(ctx, rows, [kernels.Draw(*d) for d in draws])
        assert_bitwise_equal(got, expected, f"isa={ctx.isa} threads={ctx.threads}")
        mixed = kernels.sample(ctx, rows[order], [kernels.Draw(*draws[i]) for i in order])
        assert_bitwise_equal(mixed, expected[order], f"isa={ctx.isa} threads={ctx.threads}, in another order")
        assert [draw(kernels, ctx, rows[i], *draws[i]) for i in order[:5]] == expected[order[:5]].tolist()
    assert kernels.sample(contexts[0], rows[:0], []).shape == (0,)


def test_negative_control_a_neighbours_draw_is_told_apart(kernels: ModuleType, contexts: list[Any]) -> None:
    rows, draws = many_rows(3000)
    mine = kernels.sample(contexts[0], rows, [kernels.Draw(*d) for d in draws])
    shifted = kernels.sample(contexts[0], rows, [kernels.Draw(*d) for d in [*draws[1:], draws[0]]])
    assert first_difference(mine, shifted) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", bad) for bad in (-1, np.inf, np.nan)),
        *(("top_p", bad) for bad in (0.0, 1.5, np.nan)),
        *(("min_p", bad) for bad in (-0.1, 2.0, np.nan)),
        ("top_k", -1),
    ],
)
def test_parameters_out_of_range_are_refused(name: str, value: float, kernels: ModuleType, contexts: list[Any]) -> None:
    good = kernels.Draw(1.0, 0, 1.0, 0.0, 0, 0, 0)
    with pytest.raises(ValueError, match="out of range"):
        kernels.sample(contexts[0], np.zeros((2, 4), np.float32), [good, good._replace(**{name: value})])
    with pytest.raises(ValueError, match="one parameter and one id per row"):
        kernels.sample(contexts[0], np.zeros((2, 4), np.float32), [good])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_that_is_not_finite_harms_no_other(value: float, kernels: ModuleType, contexts: list[Any]) -> None:
    """Callers see to it that none is drawn from; if one is, it stays within its bounds."""
    rows, draws = many_rows(300)
    spoilt = rows.copy()
    spoilt[::3, ::2] = value
    for ctx in contexts:
        expected, got = (kernels.sample(ctx, r, [kernels.Draw(*d) for d in draws]) for r in (rows, spoilt))
        untouched = np.arange(len(draws)) % 3 > 0
        assert_bitwise_equal(got[untouched], expected[untouched])
        assert ((got >= 0) & (got < 300)).all()


def test_case_s04_ties_at_the_top_go_to_the_lowest_id(kernels: ModuleType, contexts: list[Any]) -> None:
    logits = np.full(32_000, -10, np.float32)
    logits[[17, 301]] = 21.375
    for parameters in [(1.0, 1, 1.0, 0.0), (0.0, 0, 1.0, 0.0), (1.0, 0, 1e-6, 0.0), (1e-8, 0, 1.0, 0.0)]:
        for ctx in contexts[::4]:
            drawn = {draw(kernels, ctx, logits, *parameters, seed, 0, 0) for seed in range(10)}
            assert drawn == {17}, parameters
    both = {draw(kernels, contexts[-1], logits, 1.0, 2, 1.0, 0.0, seed, 0, 0) for seed in range(50)}
    assert both == {17, 301}, "without a filter both ties can be drawn"


def test_min_p_is_compared_exactly(kernels: ModuleType, contexts: list[Any]) -> None:
    logits = np.float32([0, -1, -0.5])
    weight = weights(logits, 1.0)[1]
    for excess, possible in ((0.0, {0, 1, 2}), (0.5, {0, 2}), (1.0, {0, 2})):
        least = (weight + excess) / 2**40  # exact in binary64
        for ctx in contexts[::3]:
            assert {draw(kernels, ctx, logits, 1.0, 0, 1.0, least, s, 0, 0) for s in range(60)} == possible


def test_top_p_is_compared_exactly(kernels: ModuleType, contexts: list[Any]) -> None:
    logits = np.zeros(4, np.float32)  # a prefix of two weighs exactly half
    for top_p, possible in ((0.5, {0, 1}), (0.5 + 2**-33, {0, 1}), (0.5 + 2**-32, {0, 1, 2}), (0.25, {0})):
        for ctx in contexts[::3]:
            assert {draw(kernels, ctx, logits, 1.0, 0, top_p, 0.0, s, 0, 0) for s in range(60)} == possible


@given(
    vocab=st.integers(1, 70),
    temperature=st.floats(0, 3),
    top_k=st.integers(0, 20),
    top_p=st.floats(0.0001, 1),
    min_p=st.floats(0, 1),
    seed=st.integers(-(2**63), 2**63 - 1),
    token=st.integers(0, 2**31 - 1),
    choice=st.integers(0, 127),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_parameters(
    vocab: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    token: int,
    choice: int,
    kernels: ModuleType,
    contexts: list[Any],
) -> None:
    logits = np.random.default_rng(vocab).integers(-6, 6, vocab).astype(np.float32) / np.float32(2)
    arguments = (temperature, top_k, top_p, min_p, seed, token, choice)
    expected = reference.sample(logits, *arguments)
    assert {draw(kernels, ctx, logits, *arguments) for ctx in contexts} == {expected}


def test_negative_control_a_draw_by_floats_is_told_apart() -> None:
    logits = np.random.default_rng(1).standard_normal(200).astype(np.float32)
    draws, others = [], []
    for seed in range(300):
        draws.append(reference.sample(logits, 1.0, 0, 1.0, 0.0, seed, 0, 0))
        p = np.exp(logits - logits.max())
        others.append(int(np.searchsorted(np.cumsum(p / p.sum()), np.random.default_rng(seed).random())))
    assert draws != others


@pytest.mark.parametrize("vocab", [1, 15, 16, 17, 1000])
def test_excluded_ids_and_no_others_are_minus_infinity(vocab: int, kernels: ModuleType) -> None:
    rng = np.random.default_rng(vocab)
    row = rng.standard_normal(vocab, dtype=np.float32)
    row[0] = np.nan
    allowed = rng.random(vocab) < 0.5
    expected = np.where(allowed, row, np.float32(-np.inf))
    out = np.empty_like(row)
    kernels.exclude(row, allowed, out)
    assert_bitwise_equal(out, expected, "apart")
    kernels.exclude(row, allowed, row)
    assert_bitwise_equal(row, expected, "in place")
    with pytest.raises(ValueError, match="allowed, out"):
        kernels.exclude(row, allowed[1:], row)
