"""What HTTP costs: tokens per second through ``samebits serve`` against the engine alone, and times that users notice.

``python -m benchmarks.server [--json FILE]``. The client is one process with plain sockets, on the same processors as
the server, so that its share is counted as HTTP's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from samebits import LLM, SamplingParams

CONCURRENCY, REQUESTS, NEW_TOKENS, ROUNDS = 32, 64, 128, 3
PROMPTS = [f"{i}. Once upon a time" for i in range(REQUESTS)]
IDLE_CONNECTIONS = 200
LONG_PROMPT = 1000


class Server:
    """``samebits serve smollm2`` as a process of its own; ``ready_s`` is the time from the command to its line."""

    def __init__(self) -> None:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "samebits", "serve", "smollm2", "--port", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self.ready_s = time.perf_counter() - begin
        self.port = int(line.split("http://127.0.0.1:")[1].split("/")[0])

    def close(self) -> None:
        self._process.terminate()
        assert self._process.wait(60) == 0


async def ask(port: int, body: dict[str, Any]) -> bytes:
    """One request on a connection of its own; the whole response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps({"model": "smollm2"} | body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}\r\n"
    writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + content)
    answer = await reader.read(-1)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
    return answer


def through_http(port: int, *, stream: bool) -> None:
    """All prompts, so many at a time."""
    free = asyncio.Semaphore(CONCURRENCY)

    async def one(prompt: str) -> None:
        async with free:
            body = {"prompt": prompt, "max_tokens": NEW_TOKENS, "ignore_eos": True, "stream": stream}
            answer = await ask(port, body)
            assert answer.count(b"data: ") > NEW_TOKENS // 2 if stream else b'"usage"' in answer

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, PROMPTS))

    asyncio.run(all_of_them())


def throughput(port: int) -> dict[str, float]:
    """Tokens per second of each way, the best of interleaved rounds."""
    with LLM("smollm2") as llm:

        def alone(logprobs: int | None) -> Callable[[], object]:
            params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True, temperature=0, logprobs=logprobs)
            return lambda: llm.generate(PROMPTS, params)

        arms: dict[str, Callable[[], object]] = {
            "engine": alone(None),
            "engine, with log-probabilities": alone(0),
            "HTTP": lambda: through_http(port, stream=False),
            "HTTP, streamed": lambda: through_http(port, stream=True),
        }
        best, names = dict.fromkeys(arms, 0.0), list(arms)
        for turn in range(len(arms)):  # each is first once: what comes first is often favoured
            for name in names[turn:] + names[:turn]:
                time.sleep(0.5)
                begin = time.perf_counter()
                arms[name]()
                best[name] = max(best[name], REQUESTS * NEW_TOKENS / (time.perf_counter() - begin))
    return best


def first_tokens(port: int) -> dict[str, float]:
    """Seconds for one token after a long prompt: computed, and found in the prefix cache."""
    rng = np.random.default_rng(5)
    best = {"computed": float("inf"), "cached": float("inf")}
    for _ in range(ROUNDS):
        ids = rng.integers(100, 40_000, LONG_PROMPT).tolist()
        for name in best:
            begin = time.perf_counter()
            asyncio.run(ask(port, {"prompt": ids, "max_tokens": 1}))
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def with_idle_connections(port: int) -> dict[str, float]:
    """Seconds of one request of many tokens, alone and beside connections that say nothing."""

    async def timed() -> float:
        begin = time.perf_counter()
        await ask(port, {"prompt": "Once", "max_tokens": 256, "ignore_eos": True})
        return time.perf_counter() - begin

    async def beside() -> float:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(IDLE_CONNECTIONS)]
        seconds = await timed()
        for _, writer in idle:
            writer.close()
        return seconds

    best = {"none": float("inf"), str(IDLE_CONNECTIONS): float("inf")}
    for _ in range(ROUNDS):
        best["none"] = min(best["none"], asyncio.run(timed()))
        best[str(IDLE_CONNECTIONS)] = min(best[str(IDLE_CONNECTIONS)], asyncio.run(beside()))
    return best


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    ready = []
    for _ in range(ROUNDS):
        server = Server()
        ready.append(server.ready_s)
        if len(ready) < ROUNDS:
            server.close()
    try:
        result = {
            "ready_s": min(ready),
            "tokens_per_s": throughput(server.port),
            "first_token_s": first_tokens(server.port),
            "idle_connections_s": with_idle_connections(server.port),
        }
    finally:
        server.close()
    table = Table(title=f"SmolLM2-135M, bf16, {CONCURRENCY} at a time, {NEW_TOKENS} new tokens each")
    for name in ("way", "tok/s", "of the engine"):
        table.add_column(name, justify="left" if name == "way" else "right")
    speeds = result["tokens_per_s"]
    for name, speed in speeds.items():
        table.add_row(name, f"{speed:.0f}", f"{speed / speeds['engine']:.1%}")
    console = Console()
    console.print(table)
    console.print({key: value for key, value in result.items() if key != "tokens_per_s"})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
