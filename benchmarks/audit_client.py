"""How many requests a second the audit can ask, and whether its memory grows: `python -m benchmarks.audit_client`.

A stub in a process of its own answers at once with fixed bytes, so that what is measured is the client: the plan, HTTP,
reading the answer, its digest and the journal on the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httptools
import psutil
import uvloop

from samebits.audit.carry_out import carry_out
from samebits.audit.journal import Journal
from samebits.audit.plan import Experiment, Plan
from samebits.audit.prompts import Prompt
from samebits.audit.targets import HttpSpec

WORDS = ["the", "answer", "is", "made", "of", "these", "twelve", "words", "and", "of", "nothing", "else"]
BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "system_fingerprint": "stub",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": " ".join(WORDS)}, "finish_reason": "stop"},
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21},
    }
).encode()
MODELS = json.dumps({"object": "list", "data": [{"id": "stub", "object": "model"}]}).encode()


class _Stub(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_message_complete(self) -> None:
        body = MODELS if self._url.endswith(b"/models") else BODY
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)


def _serve(port: Connection) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Stub, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


def measure(requests: int, concurrency: int) -> dict[str, float]:
    """Requests a second, processor time of the client a request, and resident memory along the way.

    Returns:
        ``requests``, ``requests_per_s``, ``client_us`` (microseconds of processor time a request), ``mib_at_tenth`` and
        ``mib_at_end``.
    """
    ours, theirs = multiprocessing.Pipe()
    stub = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    stub.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    prompts = tuple(Prompt(id=f"p{i}", messages=({"role": "user", "content": f"Question {i}?"},)) for i in range(10))
    settings = Experiment(runs=requests // 10, concurrency=(concurrency,), times=1, orders=1, top_logprobs=None)
    plan, process = Plan(settings, prompts), psutil.Process()
    done, memory = 0, {}

    def advance(name: str, count: int) -> None:
        nonlocal done
        done += count
        if done == requests // 10:
            memory["mib_at_tenth"] = process.memory_info().rss / 2**20

    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "j", plan.digest(()), {}) as journal:
        work = carry_out(plan, [HttpSpec(name="stub", url=url)], journal, timeout=30, resend=False, advance=advance)
        begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
        seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
        memory["mib_at_end"] = process.memory_info().rss / 2**20
    stub.terminate()
    spent = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return {"requests": requests, "requests_per_s": requests / seconds, "client_us": spent / requests * 1e6} | memory


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=32)
    options = parser.parse_args()
    print(json.dumps({name: round(value, 1) for name, value in measure(options.requests, options.concurrency).items()}))


if __name__ == "__main__":
    main()
