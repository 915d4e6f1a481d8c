"""Tests of bits instead of reading settings: does a result change with what should not matter?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

# Sizes at which common libraries are known to differ: pytorch/pytorch#88718 for the small one, and a layer of a model.
SHAPES: Final = ((56, 444), (1024, 1024), (2048, 512))
ROWS: Final = 8


@dataclass(frozen=True)
class Probe:
    """One test.

    Attributes:
        name: what was tried.
        differs: whether bits changed; None where it could not be tried.
        detail: where, or why not.
    """

    name: str
    differs: bool | None
    detail: str


def run_probes() -> list[Probe]:
    """All tests that this process can carry out; a second at most."""
    probes = [_numpy_batch(), _numpy_threads()]
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        probes += [_torch_batch(torch), _torch_threads(torch), _cuda_repeat(torch)]
    return probes


def _inputs(k: int, n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)  # a generator of its own: the caller's random state stays
    return rng.standard_normal((ROWS, k), np.float32), rng.standard_normal((k, n), np.float32)


def _tried(name: str, compare: Callable[[int, int], bool]) -> Probe:
    moved = [f"{k}×{n}" for k, n in SHAPES if not compare(k, n)]
    detail = f"at {', '.join(moved)}" if moved else f"equal at {', '.join(f'{k}×{n}' for k, n in SHAPES)}"
    return Probe(name, bool(moved), detail)


def _equal(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def _numpy_batch() -> Probe:
    def compare(k: int, n: int) -> bool:
        x, w = _inputs(k, n)
        return _equal(x[:1] @ w, (x @ w)[:1])

    return _tried("numpy: a row alone and in a batch", compare)


def _numpy_threads() -> Probe:
    import threadpoolctl

    name = "numpy: one thread and all"
    if max((info["num_threads"] for info in threadpoolctl.threadpool_info()), default=1) < 2:
        return Probe(name, None, "there is only one thread")

    def compare(k: int, n: int) -> bool:
        x, w = _inputs(k, n)
        with threadpoolctl.threadpool_limits(1):
            one = x @ w
        return _equal(one, x @ w)

    return _tried(name, compare)


def _torch_batch(torch: Any) -> Probe:
    def compare(k: int, n: int) -> bool:
        x, w = map(torch.from_numpy, _inputs(k, n))
        return _equal(x[:1] @ w, (x @ w)[:1])

    return _tried("torch: a row alone and in a batch", compare)


def _torch_threads(torch: Any) -> Probe:
    name, threads = "torch: one thread and all", torch.get_num_threads()
    if threads < 2:
        return Probe(name, None, "there is only one thread")

    def compare(k: int, n: int) -> bool:
        x, w = map(torch.from_numpy, _inputs(k, n))
        many = x @ w
        try:
            torch.set_num_threads(1)
            return _equal(x @ w, many)
        finally:
            torch.set_num_threads(threads)

    return _tried(name, compare)


def _cuda_repeat(torch: Any) -> Probe:
    """Two streams at once, which is where the workspace of cuBLAS matters."""
    name = "torch on CUDA: the same product again, in two streams"
    if not torch.cuda.is_available():
        return Probe(name, None, "there is no GPU")
    if not torch.cuda.is_initialized():
        return Probe(name, None, "CUDA is not in use yet, and is not to be started here")

    def compare(k: int, n: int) -> bool:
        x, w = (torch.from_numpy(a).cuda() for a in _inputs(k, n))
        streams = [torch.cuda.Stream() for _ in range(2)]
        results: list[Any] = []
        for i in range(32):
            with torch.cuda.stream(streams[i % 2]):
                results.append(x @ w)
        torch.cuda.synchronize()
        return all(_equal(results[0].cpu(), result.cpu()) for result in results)

    return _tried(name, compare)
