"""Attention over the paged cache: every path, page size, batch and chunk gives the bits of the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samebits.kernels import reference
from samebits.numerics import (
    PROFILES,
    Profile,
    assert_bitwise_equal,
    exp32,
    first_difference,
    rope_tables,
)


@dataclass(frozen=True)
class Shape:
    heads: int
    kv: int
    dim: int

    @property
    def width(self) -> int:
        return (self.heads + 2 * self.kv) * self.dim

    def inverse_frequencies(self) -> np.ndarray:
        return (10_000.0 ** (-np.arange(0, self.dim, 2) / self.dim)).astype(np.float32)


def expected_rows(qkv: np.ndarray, positions: np.ndarray, shape: Shape, profile: Profile) -> np.ndarray:
    """The reference for the query rows at `positions` of one sequence with `qkv` (L, width)."""
    tables = rope_tables(shape.inverse_frequencies(), qkv.shape[0])
    parts = qkv.reshape(-1, shape.heads + 2 * shape.kv, shape.dim)
    q, k = parts[positions, : shape.heads], parts[:, shape.heads : shape.heads + shape.kv]
    out = reference.attention(
        reference.rotate(q, tables.cos[positions], tables.sin[positions]),
        reference.rotate(k, tables.cos, tables.sin),
        parts[:, shape.heads + shape.kv :],
        positions,
        profile,
    )
    return out.reshape(positions.size, -1)


class Paged:
    """Sequences in one cache, their pages scattered. All pages hold garbage at first, as after a former owner."""

    def __init__(
        self,
        kernels: ModuleType,
        ctx: Any,
        profile: Profile,
        shape: Shape,
        page_size: int,
        lengths: list[int],
        garbage: float = 3e38,
    ) -> None:
        self.kernels, self.ctx, self.shape, self.page_size = kernels, ctx, shape, page_size
        counts = [-(-length // page_size) for length in lengths]
        total = sum(counts) + 1
        self.cache = kernels.KvCache(profile, 2, total, page_size, shape.kv, shape.dim)
        order = np.random.default_rng(total).permutation(np.arange(1, total, dtype=np.int32))
        self.tables = np.zeros((len(lengths), max(counts)), np.int32)
        for s, count in enumerate(counts):
            self.tables[s, :count], order = order[:count], order[count:]
        self.rope = rope_tables(shape.inverse_frequencies(), max(lengths))
        self._store_everywhere(garbage)

    def _store_everywhere(self, value: float) -> None:
        slots = np.arange(self.cache.pages * self.page_size, dtype=np.int64)
        rows = np.full((slots.size, self.shape.width), value, np.float32)
        q = np.empty((slots.size, self.shape.heads * self.shape.dim), np.float32)
        positions = np.zeros(slots.size, np.int32)
        self.kernels.rope_store(self.ctx, rows, positions, slots, self.rope.cos, self.rope.sin, self.cache, 1, q)

    def store(self, s: int, qkv: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Store rows of sequence `s` in layer 1 and return their rotated queries (T, H·D)."""
        pages = self.tables[s, positions // self.page_size].astype(np.int64)
        slots = pages * self.page_size + positions % self.page_size
        q = np.full((positions.size, self.shape.heads * self.shape.dim), np.nan, np.float32)
        rows = np.ascontiguousarray(qkv)
        self.kernels.rope_store(self.ctx, rows, positions, slots, self.rope.cos, self.rope.sin, self.cache, 1, q)
        return q

    def attend(self, q: np.ndarray, positions: np.ndarray, starts: list[int], tables: np.ndarray) -> np.ndarray:
        out = np.full(q.shape, np.nan, np.float32)
        self.kernels.attention(
            self.ctx,
            q,
            self.cache,
            1,
            positions,
            np.array(starts, np.int32),
            np.ascontiguousarray(tables),
            out,
        )
        return out


def attend_one(paged: Paged, qkv: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Store a whole sequence, then attend from the rows at `positions`."""
    q = paged.store(0, qkv, np.arange(qkv.shape[0], dtype=np.int32))
    # A call takes runs of consecutive positions: each run is a sequence of its own over the same pages.
    starts = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist()]
    tables = np.repeat(paged.tables[:1], len(starts), axis=0)
    return paged.attend(np.ascontiguousarray(q[positions]), positions, [*starts, positions.size], tables)


def random_qkv(seed: int, length: int, shape: Shape) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((length, shape.width), dtype=np.float32)


EDGES = np.array([0, 1, 2, 14, 15, 16, 17, 100, 254, 255, 256, 257, 271, 272, 511, 512, 513, 529], np.int32)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("shape", [Shape(9, 3, 64), Shape(2, 2, 16)])
def test_around_every_edge_of_a_block(
    profile: Profile, shape: Shape, kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    qkv = random_qkv(1, 530, shape)
    expected = expected_rows(qkv, EDGES, shape, profile)
    same_on_every_path(
        lambda ctx: attend_one(Paged(kernels, ctx, profile, shape, 16, [530]), qkv, EDGES), expected, profile
    )


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "shape",
    [Shape(1, 1, 2), Shape(3, 1, 6), Shape(4, 4, 18), Shape(2, 1, 34), Shape(8, 2, 80), Shape(2, 1, 128)],
)
def test_every_head_size_and_group(
    profile: Profile, shape: Shape, kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    qkv, positions = random_qkv(2, 270, shape), np.array([0, 5, 15, 16, 63, 255, 256, 269], np.int32)
    expected = expected_rows(qkv, positions, shape, profile)
    same_on_every_path(
        lambda ctx: attend_one(Paged(kernels, ctx, profile, shape, 32, [270]), qkv, positions),
        expected,
        profile,
    )


@pytest.mark.parametrize("profile", ["fp32", "bf16"])
@pytest.mark.parametrize("page_size", [1, 2, 4, 8, 16, 64, 256])
def test_page_size_moves_nothing(
    profile: Profile, page_size: int, kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    shape, positions = Shape(2, 1, 32), np.array([0, 1, 2, 3, 7, 8, 9, 31, 255, 256, 299], np.int32)
    qkv = random_qkv(3, 300, shape)
    expected = expected_rows(qkv, positions, shape, profile)
    same_on_every_path(
        lambda ctx: attend_one(Paged(kernels, ctx, profile, shape, page_size, [300]), qkv, positions),
        expected,
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_batches_of_prefill_chunks_and_decodes(
    profile: Profile, kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    """Case K07: rows of one sequence do not move when the lengths of the others change."""
    shape, lengths = Shape(4, 2, 16), [300, 270, 12, 1, 257]
    sequences = [random_qkv(10 + s, length, shape) for s, length in enumerate(lengths)]
    # A chunk across an edge, a decode, a whole prompt, a single token, a decode at the first key of a block.
    rows = [np.arange(240, 262), np.array([269]), np.arange(12), np.array([0]), np.array([256])]
    rows = [r.astype(np.int32) for r in rows]
    expected = [expected_rows(qkv, r, shape, profile) for qkv, r in zip(sequences, rows, strict=True)]

    def run(ctx: Any, order: list[int]) -> np.ndarray:
        paged = Paged(kernels, ctx, profile, shape, 16, lengths)
        q = {s: paged.store(s, sequences[s], np.arange(lengths[s], dtype=np.int32)) for s in order}
        starts = [0, *np.cumsum([rows[s].size for s in order]).tolist()]
        return paged.attend(
            np.concatenate([q[s][rows[s]] for s in order]),
            np.concatenate([rows[s] for s in order]),
            starts,
            paged.tables[order],
        )

    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [2], [1, 4], [0]):
        wanted = np.concatenate([expected[s] for s in order])
        same_on_every_path(lambda ctx, order=order: run(ctx, order), wanted, f"{profile} order {order}")


@pytest.mark.parametrize("profile", PROFILES)
def test_stored_token_by_token_or_at_once(
    profile: Profile, kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    """Decode and prefill: attending after each stored token gives the rows of one prefill."""
    shape, length = Shape(3, 1, 16), 40
    qkv, positions = random_qkv(5, length, shape), np.arange(length, dtype=np.int32)
    expected = expected_rows(qkv, positions, shape, profile)

    def run(ctx: Any, chunk: int) -> np.ndarray:
        paged, out = Paged(kernels, ctx, profile, shape, 8, [length]), []
        for start in range(0, length, chunk):
            rows = positions[start : start + chunk]
            q = paged.store(0, qkv[start : start + chunk], rows)
            out.append(paged.attend(q, rows, [0, rows.size], paged.tables))
        return np.concatenate(out)

    for chunk in (1, 3, 16, 40):
        same_on_every_path(lambda ctx, chunk=chunk: run(ctx, chunk), expected, f"chunk {chunk}")


@pytest.mark.parametrize("profile", ["fp32", "bf16"])
@pytest.mark.parametrize("garbage", [-3e38, np.inf, np.nan])
@pytest.mark.parametrize(("page_size", "dim"), [(1, 16), (4, 32), (16, 18), (64, 32)])
def test_keys_after_a_position_do_not_exist(
    profile: Profile,
    garbage: float,
    page_size: int,
    dim: int,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
) -> None:
    """What a former owner left in a page reaches no result, whatever it is; pages are not cleared."""
    shape, chunks = Shape(2, 1, dim), [(0, 1), (1, 4), (4, 18), (18, 19), (19, 250), (250, 262), (262, 263)]
    qkv, positions = random_qkv(6, 263, shape), np.arange(263, dtype=np.int32)

    def run(ctx: Any) -> np.ndarray:
        paged, out = Paged(kernels, ctx, profile, shape, page_size, [270], garbage), []
        for start, stop in chunks:
            q = paged.store(0, qkv[start:stop], positions[start:stop])
            if stop - start < 20:  # the long one only fills pages
                out.append(paged.attend(q, positions[start:stop], [0, stop - start], paged.tables))
        return np.concatenate(out)

    asked = np.concatenate([positions[:19], positions[250:]])
    same_on_every_path(run, expected_rows(qkv, asked, shape, profile))


def test_control_a_key_too_many_is_seen(kernels: ModuleType, contexts: list[Any]) -> None:
    """A row that counts one key more than were stored meets the garbage."""
    shape, positions = Shape(2, 1, 16), np.arange(10, dtype=np.int32)
    qkv = random_qkv(6, 10, shape)
    paged = Paged(kernels, contexts[-1], "fp32", shape, 16, [20], np.nan)
    q = paged.store(0, qkv, positions)
    assert np.isfinite(paged.attend(q, positions, [0, 10], paged.tables)).all()
    assert np.isnan(paged.attend(q[9:].copy(), positions[9:] + np.int32(1), [0, 1], paged.tables)).all()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("at", [5, 17, 256])
def test_a_token_that_overflows_spoils_no_earlier_token(
    profile: Profile, at: int, kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    """Earlier rows of the chunk stay right: their keys and values may be shared through the prefix cache."""
    shape, positions = Shape(2, 1, 16), np.arange(max(0, at - 20), at + 3, dtype=np.int32)
    qkv = random_qkv(7, at + 3, shape)
    qkv[at, 3 * 16 : 4 * 16] = np.inf
    expected = expected_rows(qkv, positions, shape, profile)
    assert np.isfinite(expected[positions < at]).all()
    assert not np.isfinite(expected[positions >= at]).any()
    same_on_every_path(
        lambda ctx: attend_one(Paged(kernels, ctx, profile, shape, 16, [at + 3]), qkv, positions), expected
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_extreme_values(
    profile: Profile,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
    extreme: Callable[..., np.ndarray],
) -> None:
    shape, positions = Shape(2, 1, 6), np.array([0, 1, 5, 20, 255, 259], np.int32)
    rng = np.random.default_rng(7)
    wild = extreme(rng, (260, shape.width))
    far = (rng.standard_normal((260, shape.width)) * 30).astype(np.float32)  # most weights are below exp's end
    same = np.tile(rng.standard_normal((1, shape.width), dtype=np.float32), (260, 1))
    values = rng.standard_normal((260, shape.width), dtype=np.float32)
    values[:, 3 * 6 :] = np.clip(wild[:, 3 * 6 :], -3e38, 3e38)  # finite as bfloat16; their sums overflow
    values[::2, 3 * 6 :] = rng.choice(np.float32([1e-45, -1e-45, 2.0**-55, -0.0, 1e-38]), (130, 6))
    assert np.isfinite(expected_rows(values, positions, shape, profile)).any()
    for name, qkv in (("wild", wild), ("far", far), ("same", same), ("values", values)):
        expected = expected_rows(qkv, positions, shape, profile)
        same_on_every_path(
            lambda ctx, qkv=qkv: attend_one(Paged(kernels, ctx, profile, shape, 16, [260]), qkv, positions),
            expected,
            f"{name} {profile}",
        )


def test_weighted_values_that_round_to_minus_zero_become_plus_zero(
    kernels: ModuleType, same_on_every_path: Callable[..., None]
) -> None:
    """Keys that do not exist weigh zero in a tile and would clear the sign here and not there."""
    shape = Shape(1, 1, 16)
    qkv = np.zeros((3, shape.width), np.float32)
    qkv[:, :16], qkv[0, 16:32] = 1, 1  # key 0 has the greatest score, so the others weigh below ½
    qkv[1:, 32:] = -1e-45  # and a weight below ½ times the least denormal rounds to −0
    positions = np.array([1, 2], np.int32)
    expected = expected_rows(qkv, positions, shape, "fp32")
    assert not expected.view(np.uint32).any()
    same_on_every_path(lambda ctx: attend_one(Paged(kernels, ctx, "fp32", shape, 16, [3]), qkv, positions), expected)


def test_exp_shows_its_bits(kernels: ModuleType, same_on_every_path: Callable[..., None]) -> None:
    """Keys with scores 0 and −x and values 0 and 1 give e ÷ (1 + e), e = exp(−x), which is e for x > 17."""
    rng = np.random.default_rng(9)
    ties = (np.arange(24, 125, 4)[:, None] + 0.5) * np.log(2) + np.linspace(-1e-3, 1e-3, 40)  # r is longest there
    x = [rng.uniform(0, 87.5, 4000), ties.ravel(), 87 + np.arange(-30, 30) * 2.0**-17, [0.0, 1e-45, 500.0]]
    x = np.concatenate(x).astype(np.float32)
    qkv = np.zeros((x.size, 2, 3, 4), np.float32)
    qkv[:, :, 0, 0] = 2  # the scale of four dimensions is ½
    qkv[:, 1, 1, 0], qkv[:, 1, 2] = -x, 1
    rows, count = qkv.reshape(2 * x.size, 12), x.size
    still = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)  # no rotation
    e = exp32(-x)
    expected = np.repeat((e / (1 + e))[:, None], 4, axis=1)

    def run(ctx: Any) -> np.ndarray:
        cache = kernels.KvCache("fp32", 1, count, 2, 1, 4)
        positions, slots = np.tile(np.int32([0, 1]), count), np.arange(2 * count, dtype=np.int64)
        q, out = np.empty((2 * count, 4), np.float32), np.empty((count, 4), np.float32)
        kernels.rope_store(ctx, rows, positions, slots, *still, cache, 0, q)
        starts, pages = np.arange(count + 1, dtype=np.int32), np.arange(count, dtype=np.int32)[:, None]
        kernels.attention(ctx, q[1::2].copy(), cache, 0, positions[1::2].copy(), starts, pages.copy(), out)
        return out

    same_on_every_path(run, expected)


@given(
    length=st.integers(1, 40),
    dim=st.integers(1, 20),
    groups=st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2)]),
    page_size=st.sampled_from([1, 2, 4, 16]),
    profile=st.sampled_from(PROFILES),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_small_shape(
    length: int,
    dim: int,
    groups: tuple[int, int],
    page_size: int,
    profile: Profile,
    seed: int,
    kernels: ModuleType,
    same_on_every_path: Callable[..., None],
) -> None:
    shape = Shape(*groups, 2 * dim)
    qkv, positions = random_qkv(seed, length, shape), np.arange(length, dtype=np.int32)
    expected = expected_rows(qkv, positions, shape, profile)
    same_on_every_path(
        lambda ctx: attend_one(Paged(kernels, ctx, profile, shape, page_size, [length]), qkv, positions),
        expected,
    )


def test_negative_control_a_split_by_count_is_told_apart(kernels: ModuleType, contexts: list[Any]) -> None:
    """Keys cut in two halves instead of blocks of 256, as a kernel does that fills the machine."""
    shape, positions = Shape(2, 2, 32), np.array([529], np.int32)
    qkv = random_qkv(8, 530, shape)
    got = attend_one(Paged(kernels, contexts[-1], "fp32", shape, 16, [530]), qkv, positions)
    assert_bitwise_equal(got, expected_rows(qkv, positions, shape, "fp32"))
    tables = rope_tables(shape.inverse_frequencies(), 530)
    parts = qkv.reshape(530, 6, 32)
    q = reference.rotate(parts[529:, :2], tables.cos[529:], tables.sin[529:]).astype(np.float32)[0]
    k = reference.rotate(parts[:, 2:4], tables.cos, tables.sin)
    scores = np.einsum("hd,lhd->hl", q, k) / np.sqrt(np.float32(32))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True)).astype(np.float32)
    halves = [np.einsum("hl,lhd->hd", weights[:, s], parts[s, 4:]) for s in (slice(0, 265), slice(265, 530))]
    other = (halves[0] + halves[1]) / weights.sum(axis=1, keepdims=True)
    assert first_difference(got, other.reshape(1, -1).astype(np.float32)) is not None
