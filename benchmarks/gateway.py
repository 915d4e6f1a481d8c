"""What the gateway costs: requests a second that the cache answers, and milliseconds that a request takes longer than
without it. ``python -m benchmarks.gateway [--stub-port PORT --peer PORT] [--json FILE]``.

A stub upstream in a process of its own answers each request after a time that is drawn uniformly from ``DELAY_S``, as a
model does, so that 32 clients are not answered in step. It says that time in its answer, and what a client
waited beyond it is the cost: of HTTP alone on the way to the stub, of HTTP and the gateway through it. Both are
measured in one run, in turns. Client, server and stub share the processors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.openai_stub import Stub, chat_answer, running

CONCURRENCY, HITS, PASSED, ROUNDS = 32, 6000, 960, 5
DELAY_S = (0.1, 0.3)
MESSAGE = "Summarise the following in one sentence. " + "The quick brown fox jumps over the lazy dog. " * 20


class _Stub(Stub):
    rng = random.Random(1)

    def answer(self) -> None:
        started = time.perf_counter()
        asyncio.get_running_loop().call_later(self.rng.uniform(*DELAY_S), self._say, started)

    def _say(self, started: float) -> None:
        self.send(chat_answer(f"waited {time.perf_counter() - started:.6f} s"))


class Gateway:
    """``samebits serve`` before the stub, as a process of its own."""

    def __init__(self, stub_port: int, folder: Path, **values: Any) -> None:
        config = folder / "samebits.yaml"
        upstream = {"engine": "upstream", "base_url": f"http://127.0.0.1:{stub_port}/v1"}
        config.write_text(json.dumps({"port": 0, "models": {"stub": upstream}, **values}), "utf-8")
        command = [sys.executable, "-m", "samebits", "serve", "--config", str(config)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self.port = int(line.split("http://127.0.0.1:")[1].split("/")[0])

    def close(self) -> None:
        self._process.terminate()
        assert self._process.wait(60) == 0


@dataclass(frozen=True)
class Load:
    """What was sent, and what came.

    Attributes:
        seconds: from the first request to the last answer.
        cost_s: of each request what it took beyond the stub's own time.
    """

    seconds: float
    cost_s: np.ndarray


def drive(
    port: int, requests: int, body: Callable[[int], dict[str, Any]], *, expect: bytes = b"", spread_s: float = 0.0
) -> Load:
    """Sends requests over so many kept connections, each its next one when its last one is answered.

    Args:
        spread_s: the connections begin at random times within so long. If all began at once, the first 32 requests
            would wait for one another, and they alone would be the last percent.
    """
    numbers, rng = iter(range(requests)), random.Random(2)
    costs: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(rng.uniform(0, spread_s))
        for number in numbers:
            content = json.dumps(body(number)).encode()
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                f"authorization: Bearer none-is-needed\r\ncontent-length: {len(content)}\r\n\r\n"
            )
            begin = time.perf_counter()
            writer.write(head.encode() + content)
            answer_head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer_head.split(b"content-length:")[1].split(b"\r\n")[0])
            answer = await reader.readexactly(length)
            took = time.perf_counter() - begin
            assert answer_head.startswith(b"http/1.1 200"), answer[:300]
            assert expect in answer_head, answer_head
            costs.append(took - float(answer.split(b"waited ")[1].split(b" ")[0]))
        writer.close()

    async def all_of_them() -> float:
        begin = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CONCURRENCY)))
        return time.perf_counter() - begin

    seconds = uvloop.run(all_of_them())
    return Load(seconds, np.array(costs))


def request(content: str) -> dict[str, Any]:
    return {"model": "stub", "temperature": 0, "messages": [{"role": "user", "content": content}]}


def hits_per_second(port: int) -> float:
    drive(port, CONCURRENCY * 2, lambda _: request(MESSAGE))
    best = 0.0
    for _ in range(ROUNDS):
        load = drive(port, HITS, lambda _: request(MESSAGE), expect=b"x-samebits-cache: hit")
        best = max(best, HITS / load.seconds)
    return best


def costs(ports: dict[str, int]) -> dict[str, dict[str, float]]:
    """Milliseconds beyond the stub's own time: of the round with the lowest median, since what else runs on
    the machine only ever adds.
    """
    best: dict[str, dict[str, float]] = {}
    for round_ in range(ROUNDS):
        for name, port in ports.items():
            drive(port, CONCURRENCY, lambda _: request("warm up"))
            load = drive(
                port,
                PASSED,
                lambda i, r=round_, n=name: request(f"{n} {r} {i} {time.time()} {MESSAGE}"),
                spread_s=DELAY_S[1],
            )
            row = {f"p{q}": round(1000 * float(np.percentile(load.cost_s, q)), 3) for q in (50, 90, 99)}
            if name not in best or row["p50"] < best[name]["p50"]:
                best[name] = row
    return best


def measure(stub_port: int, peer: int | None) -> dict[str, Any]:
    """All figures; ``peer`` is the port of another gateway before the stub."""
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(stub_port, Path(folder))
        recording = Gateway(stub_port, Path(folder), ledger={"url": f"sqlite:///{folder}/ledger.db"})
        try:
            ports = {"direct": stub_port, "gateway": gateway.port, "gateway with ledger": recording.port}
            if peer is not None:
                ports["peer"] = peer
            return {
                "cost_ms": costs(ports),
                "hits_per_s": {
                    "gateway": round(hits_per_second(gateway.port)),
                    "gateway with ledger": round(hits_per_second(recording.port)),
                },
            }
        finally:
            gateway.close()
            recording.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peer", type=int, help="port of another gateway before the stub, which --stub-port names")
    parser.add_argument("--stub-port", type=int, help="of a stub that runs already")
    parser.add_argument("--only-stub", action="store_true", help="run the stub alone, and say its port")
    options = parser.parse_args()
    with running(_Stub) if options.stub_port is None else nullcontext(options.stub_port) as port:
        if options.only_stub:
            print(port, flush=True)
            signal.pause()
        results = measure(port, options.peer)
    table = Table(title=f"{CONCURRENCY} clients, ms beyond the stub's own time")
    for name in ("way", "p50", "p90", "p99"):
        table.add_column(name)
    for name, row in results["cost_ms"].items():
        table.add_row(name, *(f"{row[q]:.2f}" for q in ("p50", "p90", "p99")))
    console = Console()
    console.print(table)
    console.print("hits per second:", results["hits_per_s"])
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
