"""How a decoder multiplies: the contract's packed kernels, or the vendor's matmul as the control that fails.

Shape letters: M rows, K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from samebits import kernels

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

# Weights are converted this many floats at a time (32 MiB), so that a large vocabulary needs no second copy in memory.
CHUNK_FLOATS = 8 << 20


class RowSource(Protocol):
    """A matrix (N, K) of the model file that gives its rows as floats."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def rows(self, start: int, stop: int) -> Floats: ...


class Matrix(Protocol):
    """A weight matrix (N, K), ready to multiply."""

    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def linear(self, ctx: kernels.Context, x: Floats, out: Floats, residual: bool = False) -> None:
        """out (M, N) = x (M, K) · Wᵀ, added to out when ``residual``."""

    def embed(self, ctx: kernels.Context, ids: Ints, out: Floats) -> None:
        """out (T, K) = the rows of W given by ids (T,)."""


class PackedWeights:
    """The contract's kernels (docs/numerics.md 3.1)."""

    def __init__(self, ctx: kernels.Context, profile: str, parts: Sequence[RowSource]) -> None:
        """Stacks ``parts``, matrices of equal K, into one."""
        self._packed = kernels.PackedMatrix(profile, sum(p.shape[0] for p in parts), parts[0].shape[1])
        _each_chunk(parts, lambda row, chunk: self._packed.set_rows(ctx, row, chunk))

    @property
    def rows(self) -> int:
        return self._packed.rows

    @property
    def nbytes(self) -> int:
        return self._packed.nbytes

    def linear(self, ctx: kernels.Context, x: Floats, out: Floats, residual: bool = False) -> None:
        kernels.linear(ctx, x, self._packed, out, residual)

    def embed(self, ctx: kernels.Context, ids: Ints, out: Floats) -> None:
        kernels.embedding(ctx, ids, self._packed, out)


class VendorWeights:
    """The platform's BLAS through numpy, as a bf16 server computes: bf16 tensors in and out, float32 sums inside.

    The order of its sums depends on M, and the rounding of results to bf16 makes a small difference a large one.
    """

    def __init__(self, ctx: kernels.Context, profile: str, parts: Sequence[RowSource]) -> None:
        del ctx, profile
        self._w = np.empty((sum(p.shape[0] for p in parts), parts[0].shape[1]), np.float32)

        def store(row: int, chunk: Floats) -> None:
            kernels.round_bf16(chunk, self._w[row : row + len(chunk)])

        _each_chunk(parts, store)

    @property
    def rows(self) -> int:
        return int(self._w.shape[0])

    @property
    def nbytes(self) -> int:
        return self._w.nbytes

    def linear(self, ctx: kernels.Context, x: Floats, out: Floats, residual: bool = False) -> None:
        rounded = np.empty_like(x)
        kernels.round_bf16(x, rounded)
        if residual:
            y = rounded @ self._w.T
            kernels.round_bf16(y, y)
            np.add(out, y, out=out)
        else:
            np.matmul(rounded, self._w.T, out=out)
        kernels.round_bf16(out, out)

    def embed(self, ctx: kernels.Context, ids: Ints, out: Floats) -> None:
        np.take(self._w, ids, axis=0, out=out)


def _each_chunk(parts: Sequence[RowSource], store: Callable[[int, Floats], None]) -> None:
    row = 0
    for part in parts:
        rows, cols = part.shape
        step = max(16, CHUNK_FLOATS // cols // 16 * 16)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            store(row + start, part.rows(start, stop))
        row += rows
