"""Every kernel test runs on every instruction set of this machine and on 1, 2 and 4 threads."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from samebits.numerics import assert_bitwise_equal

Array = NDArray[Any]
THREADS = (1, 2, 4)


@pytest.fixture(scope="session")
def kernels() -> ModuleType:
    """The compiled kernels; imported late, so that a missing build fails tests and not their collection."""
    return importlib.import_module("samebits.kernels")


@pytest.fixture(scope="session")
def contexts(kernels: ModuleType) -> list[Any]:
    """One context for each instruction set and number of threads."""
    isas = list(kernels.available_isas())
    assert "scalar" in isas
    return [kernels.Context(threads=threads, isa=isa) for isa in isas for threads in THREADS]


@pytest.fixture(scope="session")
def misaligned() -> Callable[[Array], Array]:
    """Return a function that copies an array to an address 4 bytes past a multiple of 64, C-contiguous."""

    def copy(array: Array) -> Array:
        raw = np.empty(array.nbytes + 128, np.uint8)
        start = (-raw.ctypes.data) % 64 + 4
        moved = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        assert moved.ctypes.data % 64 == 4 or not array.nbytes
        moved[...] = array
        return moved

    return copy


@pytest.fixture(scope="session")
def same_on_every_path(contexts: list[Any]) -> Callable[..., None]:
    """Return a function that runs `run(ctx)` on every path and compares with the reference, bit by bit."""

    def check(run: Callable[[Any], Array], expected: Array, name: str = "") -> None:
        for ctx in contexts:
            assert_bitwise_equal(run(ctx), expected, f"{name} isa={ctx.isa} threads={ctx.threads}")

    return check


@pytest.fixture(scope="session")
def extreme() -> Callable[..., NDArray[np.float32]]:
    """Return a function that makes finite float32 of any bit pattern, with the awkward ones frequent."""
    awkward = np.float32(
        [
            0.0,
            -0.0,
            1e-45,
            -1e-45,
            1.1754942e-38,
            -1.1754944e-38,
            3.4028235e38,
            -3.4028235e38,
            3.3895e38,
            1e20,
            -1e20,
        ]
        + [sign * 2.0**-55 * (1 + e * 2.0**-9) for sign in (1, -1) for e in (-2, -1, 0, 1)]
        + [1.0, -1.0, 65504.0, 1e-20, 0.5]
    )

    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        bits = rng.integers(0, 2**32, shape, dtype=np.uint32)
        bits = np.where(bits & np.uint32(0x7F800000) == 0x7F800000, bits ^ np.uint32(0x40000000), bits)
        return np.where(rng.random(shape) < 0.5, rng.choice(awkward, shape), bits.view(np.float32))

    return make
