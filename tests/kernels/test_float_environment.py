"""The caller's floating-point control neither reaches a bit nor comes back changed (docs/numerics.md 1)."""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from samebits.numerics import PROFILES, assert_bitwise_equal, first_difference, rope_tables

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="sets MXCSR, which is x86-64; tests/arm64 does the same with FPCR"
)
DENORMALS_ARE_ZERO, FLUSH_TO_ZERO, TOWARDS_ZERO, DOWN = 1 << 6, 1 << 15, 3 << 13, 1 << 13
CONTROL = 0xFFC0  # all but the flags of what has happened
HOSTILE = {
    "denormals": DENORMALS_ARE_ZERO | FLUSH_TO_ZERO,
    "towards zero": TOWARDS_ZERO,
    "all": DENORMALS_ARE_ZERO | FLUSH_TO_ZERO | DOWN,
}


class Mxcsr:
    """The control register of this thread, through ``ldmxcsr [rdi]; ret`` and ``stmxcsr [rdi]; ret``."""

    def __init__(self) -> None:
        try:
            self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        except OSError as error:
            pytest.skip(f"this system gives no memory that may be written and executed ({error})")
        self._code.write(b"\x0f\xae\x17\xc3\x0f\xae\x1f\xc3")
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        function = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
        self._load, self._store = function(start), function(start + 4)

    def get(self) -> int:
        value = ctypes.c_uint32()
        self._store(ctypes.byref(value))
        return value.value

    def set(self, value: int) -> None:
        self._load(ctypes.byref(ctypes.c_uint32(value)))

    @contextmanager
    def changed(self, bits: int) -> Iterator[int]:
        """Sets bits within the block; gives the control that is then to be found unchanged."""
        before = self.get()
        self.set(before | bits)
        try:
            yield (before | bits) & CONTROL
        finally:
            self.set(before)


@pytest.fixture(scope="module")
def mxcsr() -> Mxcsr:
    return Mxcsr()


def tiny(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Ordinary numbers, and so small ones that they or their products are denormal."""
    x = rng.standard_normal(shape)
    return np.where(rng.random(shape) < 0.5, x, x * 2.0 ** rng.integers(-149, -100, shape)).astype(np.float32)


def operations(kernels: ModuleType) -> dict[str, Callable[[Any], np.ndarray]]:
    """Every operation with floats, on inputs whose results depend on the control; outputs as bits of one array."""
    rng = np.random.default_rng(1)
    x, w, gate_up = tiny(rng, 3, 640), tiny(rng, 40, 640), tiny(rng, 3, 96)
    logits, qkv = rng.standard_normal((4, 3000)).astype(np.float32) * 9, tiny(rng, 300, 6 * 16)
    rope = rope_tables((10_000.0 ** (-np.arange(0, 16, 2) / 16)).astype(np.float32), 300)
    blocks = rng.integers(0, 60, (200, 144), np.uint8).reshape(-1)
    positions, pages = np.arange(300, dtype=np.int32), np.arange(19, dtype=np.int32)[None]

    def linear(profile: str) -> Callable[[Any], np.ndarray]:
        def run(ctx: Any) -> np.ndarray:
            packed, out = kernels.PackedMatrix(profile, 40, 640), np.zeros((3, 40), np.float32)
            packed.set_rows(ctx, 0, w)
            kernels.linear(ctx, x, packed, out)
            return out

        return run

    def attention(profile: str) -> Callable[[Any], np.ndarray]:
        def run(ctx: Any) -> np.ndarray:
            cache = kernels.KvCache(profile, 1, 19, 16, 2, 16)
            q, out = np.zeros((300, 32), np.float32), np.zeros((300, 32), np.float32)
            kernels.rope_store(ctx, qkv, positions, positions.astype(np.int64), rope.cos, rope.sin, cache, 0, q)
            kernels.attention(ctx, q, cache, 0, positions, np.array([0, 300], np.int32), pages, out)
            return np.concatenate([q, out])

        return run

    def simple(name: str, *inputs: Any, like: np.ndarray) -> Callable[[Any], np.ndarray]:
        def run(ctx: Any) -> np.ndarray:
            out = np.zeros_like(like)
            getattr(kernels, name)(ctx, *inputs, out)
            return out

        return run

    def dequantize(ctx: Any) -> np.ndarray:
        out = np.zeros(200 * 256, np.float32)
        kernels.dequantize("Q4_K", blocks, out)
        return out

    def sample(ctx: Any) -> np.ndarray:
        draws = [kernels.Draw(0.7, 0, 0.9, 0.0, seed, 0, 0) for seed in range(4)]
        return np.array(kernels.sample(ctx, logits, draws))

    return {
        **{f"linear {profile}": linear(profile) for profile in PROFILES},
        **{f"attention {profile}": attention(profile) for profile in ("fp32", "bf16")},
        "rmsnorm": simple("rmsnorm", x, w[0], 1e-5, like=x),
        "silu_mul": simple("silu_mul", gate_up, like=gate_up[:, :48]),
        "log_softmax": simple("log_softmax", logits, like=logits),
        "dequantize": dequantize,
        "sample": sample,
    }


@pytest.mark.parametrize("bits", HOSTILE)
def test_the_callers_control_reaches_no_bit_and_comes_back(
    bits: str, mxcsr: Mxcsr, kernels: ModuleType, contexts: list[Any]
) -> None:
    runs = operations(kernels)
    expected = {name: run(contexts[0]) for name, run in runs.items()}
    with mxcsr.changed(HOSTILE[bits]):  # threads inherit the control of the one that makes them
        born_hostile = [kernels.Context(ctx.threads, ctx.isa) for ctx in contexts if ctx.threads == 2]
    for ctx in [*contexts, *born_hostile]:
        for name, run in runs.items():
            with mxcsr.changed(HOSTILE[bits]) as control:
                got = run(ctx)
                after = mxcsr.get() & CONTROL
            assert_bitwise_equal(got, expected[name], f"{name} isa={ctx.isa} threads={ctx.threads} {bits}")
            assert after == control, f"{name} left the control changed"


@pytest.mark.parametrize("bits", HOSTILE)
def test_control_the_bits_of_numpy_are_moved(bits: str, mxcsr: Mxcsr) -> None:
    rng = np.random.default_rng(2)
    x, y = tiny(rng, 1000), rng.standard_normal(1000, dtype=np.float32)
    expected = x * y
    with mxcsr.changed(HOSTILE[bits]) as control:
        got = x * y
        assert mxcsr.get() & CONTROL == control
    assert first_difference(got, expected) is not None
    assert mxcsr.get() & CONTROL == 0x1F80, "not restored"
