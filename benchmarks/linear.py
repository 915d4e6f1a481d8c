"""Linear layers against the vendors' matmul: ``python -m benchmarks.linear [--json FILE] [--quick]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from functools import partial

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.peak import arithmetic_peaks
from benchmarks.timing import interleaved, read_bandwidth
from samebits import kernels
from samebits.numerics import PROFILES

SHAPES = {"qkv": (576, 960), "output": (576, 576), "gate_up": (576, 3072), "down": (1536, 576), "square": (2048, 2048)}
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
HEAD = (576, 49152)


def arms(
    ctx: kernels.Context, weights: dict[str, kernels.PackedMatrix], w: np.ndarray, m: int
) -> dict[str, Callable[[], object]]:
    """The same product in every way at hand."""
    n, k = w.shape
    x, out = np.random.default_rng(1).standard_normal((m, k)).astype(np.float32), np.empty((m, n), np.float32)
    calls: dict[str, Callable[[], object]] = {p: partial(kernels.linear, ctx, x, weights[p], out) for p in PROFILES}
    calls["numpy"] = lambda: np.matmul(x, w.T, out=out)
    try:
        import torch
    except ImportError:
        return calls
    a, b = torch.from_numpy(x), torch.from_numpy(w)
    a16, b16 = a.bfloat16(), b.bfloat16()
    calls["torch fp32"] = lambda: torch.nn.functional.linear(a, b)
    calls["torch bf16"] = lambda: torch.nn.functional.linear(a16, b16)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true", help="fewer rows, less time each")
    options = parser.parse_args()
    ctx = kernels.Context()
    console = Console(width=150)
    rounds = 1 if options.quick else 4
    bandwidth, peaks = read_bandwidth(ctx.threads), arithmetic_peaks(ctx.threads)
    console.print(f"{platform.machine()}, {ctx.threads} threads, {ctx.isa}; read {bandwidth / 1e9:.1f} GB/s")
    console.print(
        "arithmetic peak:", ", ".join(f"{p} {peak / 1e9:.0f} G/s" for p, peak in peaks.items()) or "not measured"
    )
    console.print(f"numpy {np.__version__}, OPENBLAS_CORETYPE={os.environ.get('OPENBLAS_CORETYPE', 'not set')}")
    rows = ROWS if not options.quick else (1, 8, 32, 512)
    records = []
    cases = [(name, k, n, m) for name, (k, n) in SHAPES.items() for m in rows]
    cases += [("head", *HEAD, m) for m in rows if m <= 32]
    packed: dict[tuple[int, int], tuple[np.ndarray, dict[str, kernels.PackedMatrix]]] = {}
    for name, k, n, m in track(cases, "measuring", console=console, transient=True):
        if (k, n) not in packed:
            packed.clear()
            w = np.random.default_rng(0).standard_normal((n, k)).astype(np.float32)
            weights = {p: kernels.PackedMatrix(p, n, k) for p in PROFILES}
            for matrix in weights.values():
                matrix.set_rows(ctx, 0, w)
            packed[k, n] = w, weights
        w, weights = packed[k, n]
        best = interleaved(arms(ctx, weights, w, m), rounds=rounds)
        records.append(
            {
                "layer": name,
                "k": k,
                "n": n,
                "m": m,
                "seconds": best,
                "gflops": {a: 2e-9 * m * n * k / t for a, t in best.items()},
            }
        )
    table = Table(title="time relative to the fastest vendor of the same precision (below 1: samebits is faster)")
    for column in (
        "layer",
        "M",
        "fp32 GF/s",
        "fp32 / vendor",
        "bf16 GF/s",
        "bf16 / torch",
        "int8 GOP/s",
        "int8 / fp32",
        "int8 / torch bf16",
    ):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for record in records:
        t, g = record["seconds"], record["gflops"]
        vendor = min(t[a] for a in ("numpy", "torch fp32") if a in t)
        bf16 = t.get("torch bf16")
        table.add_row(
            record["layer"], str(record["m"]), f"{g['fp32']:.0f}", f"{t['fp32'] / vendor:.2f}", f"{g['bf16']:.0f}",
            "-" if bf16 is None else f"{t['bf16'] / bf16:.2f}", f"{g['int8']:.0f}", f"{t['int8'] / t['fp32']:.2f}",
            "-" if bf16 is None else f"{t['int8'] / bf16:.2f}",
        )  # fmt: skip
    console.print(table)
    for p, itemsize in (("fp32", 4), ("bf16", 2), ("int8", 1)):
        head = next(r for r in records if r["layer"] == "head" and r["m"] == 1)
        share = HEAD[0] * HEAD[1] * itemsize / head["seconds"][p] / bandwidth
        console.print(f"M=1, head (larger than the caches), {p}: {share:.0%} of the read bandwidth")
    for p, peak in peaks.items():
        shares = {r["layer"]: r["gflops"][p] * 1e9 / peak for r in records if r["m"] == 512}
        text = ", ".join(f"{layer} {share:.0%}" for layer, share in shares.items())
        console.print(f"M=512, {p}: share of the arithmetic peak: {text}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(
                {"bandwidth": bandwidth, "peaks": peaks, "threads": ctx.threads, "isa": ctx.isa, "records": records},
                file,
                indent=2,
            )


if __name__ == "__main__":
    main()
