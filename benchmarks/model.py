"""The whole model: speed of decoding against the memory bound, memory, time to the first token.

``python -m benchmarks.model [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.timing import read_bandwidth
from samebits import LLM, SamplingParams
from samebits.kernels.context import usable_cpus
from samebits.numerics import PROFILES

PROMPT = "Once upon a time"
NEW_TOKENS = 128


def tokens_per_second(llm: LLM, streams: int, repeats: int = 3) -> float:
    """Best of some runs: new tokens over the time of the whole run, prompts included."""
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    prompts = [f"{i}. {PROMPT}" for i in range(streams)]
    best = 0.0
    for _ in range(repeats):
        begin = time.perf_counter()
        llm.generate(prompts, params)
        best = max(best, streams * NEW_TOKENS / (time.perf_counter() - begin))
    return best


def prefill_per_second(llm: LLM) -> float:
    """Prompt tokens a second for a prompt of 1,024 tokens, nothing reused."""
    ids = np.random.default_rng(3).integers(0, 1000, 1024).tolist()
    params = SamplingParams(max_tokens=1)
    best = float("inf")
    for i in range(3):
        ids[0] = i
        begin = time.perf_counter()
        llm.generate(ids, params)
        best = min(best, time.perf_counter() - begin)
    return len(ids) / best


def measure(profile: str) -> dict[str, Any]:
    """In this process, which should have loaded nothing else: the peak memory is the process's."""
    with LLM("smollm2", profile) as llm:
        cache = llm.engine.pool.size * llm._decoder.cache_bytes(16)
        result = {
            "profile": profile,
            "streams": {n: tokens_per_second(llm, n) for n in (1, 8, 32)},
            "prefill": prefill_per_second(llm),
            "weights": llm.weights_nbytes,
            "cache": cache,
        }
    result["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return result


def first_token_seconds(profile: str) -> float:
    """From the command to its first token, best of three, the file in the system's cache."""
    command = [sys.executable, "-m", "samebits", "generate", "smollm2", "--prompt", PROMPT, "--max-tokens", "1"]
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run([*command, "--profile", profile], check=True, capture_output=True)
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--one", choices=PROFILES, help="measure one profile in this process and print JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    console = Console(width=140)
    bandwidth = read_bandwidth(usable_cpus())
    table = Table(title=f"SmolLM2-135M, {NEW_TOKENS} new tokens; read bandwidth {bandwidth / 1e9:.1f} GB/s")
    for column in (
        "profile",
        "1 stream",
        "of bound",
        "8 streams",
        "32 streams",
        "32 : 1",
        "prefill",
        "peak - weights - KV",
        "first token",
    ):
        table.add_column(column, justify="right")
    results = []
    for profile in PROFILES:
        command = [sys.executable, "-m", "benchmarks.model", "--one", profile]
        r = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        r["first_token"] = first_token_seconds(profile)
        r["bandwidth"] = bandwidth
        r["share_of_bound"] = r["streams"]["1"] * r["weights"] / bandwidth
        results.append(r)
        s = r["streams"]
        table.add_row(
            profile, f"{s['1']:.0f} tok/s", f"{r['share_of_bound']:.0%}", f"{s['8']:.0f}", f"{s['32']:.0f}",
            f"{s['32'] / s['1']:.1f}x", f"{r['prefill']:.0f} tok/s",
            f"{(r['peak'] - r['weights'] - r['cache']) / 1e6:.0f} MB", f"{r['first_token']:.2f} s",
        )  # fmt: skip
    console.print(table)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
