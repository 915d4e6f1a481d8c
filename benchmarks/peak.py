"""Arithmetic peak of this machine, from chains of the instructions that the kernels use (x86-64)."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.timing import interleaved

KINDS = {"fp32": 0, "bf16": 1, "int8": 2}
ROUNDS = 200_000


def arithmetic_peaks(threads: int) -> dict[str, float]:
    """Operations per second of ``threads`` threads together, by profile.

    Empty where peak.cc cannot be compiled (no g++, not x86); a profile without an instruction of its own has no entry.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "peak.so"
        source = Path(__file__).with_name("peak.cc")
        command = ["g++", "-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return {}
        peak = ctypes.CDLL(str(library))
    peak.peak_operations.restype = ctypes.c_int64
    peak.peak_run.argtypes = [ctypes.c_int, ctypes.c_int64]
    peak.peak_run.restype = ctypes.c_double
    known = {name: kind for name, kind in KINDS.items() if peak.peak_operations(kind)}

    def on_all_threads(kind: int) -> None:
        list(pool.map(lambda _: peak.peak_run(kind, ROUNDS), range(threads)))

    with ThreadPoolExecutor(threads) as pool:
        best = interleaved({name: partial(on_all_threads, kind) for name, kind in known.items()}, burst=0.2)
    return {name: threads * ROUNDS * peak.peak_operations(kind) / best[name] for name, kind in known.items()}
