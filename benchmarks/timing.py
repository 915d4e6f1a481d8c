"""Timing on a shared, noisy machine: arms are interleaved and each keeps its best time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

# Every library here keeps its threads spinning for a while after a call (OpenBLAS about 20 ms), on cores that the next
# arm needs. A pause before each burst lets them sleep; the first calls of a burst wake the arm's own.
PAUSE = 0.06


def interleaved(arms: Mapping[str, Callable[[], object]], *, burst: float = 0.04, rounds: int = 3) -> dict[str, float]:
    """Best seconds of each arm. The arms take turns, one burst of calls each, so that noise meets all of them."""
    best = dict.fromkeys(arms, float("inf"))
    for _ in range(rounds):
        for name, call in arms.items():
            time.sleep(PAUSE)
            calls, end = 0, time.perf_counter() + burst
            while calls < 4 or time.perf_counter() < end:
                begin = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - begin)
                calls += 1
    return best


def read_bandwidth(threads: int) -> float:
    """Bytes per second that ``threads`` threads read together, from 128 MiB each: an OR over 64-bit words."""
    data = np.zeros((threads, 128 << 20), np.uint8)
    data[:] = 1
    views = [part.view(np.uint64) for part in data]
    with ThreadPoolExecutor(threads) as pool:
        best = interleaved({"read": lambda: list(pool.map(np.bitwise_or.reduce, views))}, burst=0.5)
    return data.nbytes / best["read"]
