"""How many requests a second the audit can ask, and whether its memory grows: `python -m benchmarks.audit_client`.

A stub in a process of its own answers at once with fixed bytes, so that what is measured is the client: the plan, HTTP,
reading the answer, its digest and the journal on the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from pathlib import Path

import psutil
import uvloop

from benchmarks.openai_stub import Stub, chat_answer, running
from samebits.audit.carry_out import carry_out
from samebits.audit.journal import Journal
from samebits.audit.plan import Experiment, Plan
from samebits.audit.prompts import Prompt
from samebits.audit.targets import HttpSpec

ANSWER = chat_answer("the answer is made of these twelve words and of nothing else")
MODELS = json.dumps({"object": "list", "data": [{"id": "stub", "object": "model"}]}).encode()


class _Stub(Stub):
    def answer(self) -> None:
        self.send(MODELS if self.url.endswith(b"/models") else ANSWER)


def measure(requests: int, concurrency: int) -> dict[str, float]:
    """Requests a second, processor time of the client a request, and resident memory along the way.

    Returns:
        ``requests``, ``requests_per_s``, ``client_us`` (microseconds of processor time a request), ``mib_at_tenth`` and
        ``mib_at_end``.
    """
    prompts = tuple(Prompt(id=f"p{i}", messages=({"role": "user", "content": f"Question {i}?"},)) for i in range(10))
    settings = Experiment(runs=requests // 10, concurrency=(concurrency,), times=1, orders=1, top_logprobs=None)
    plan, process = Plan(settings, prompts), psutil.Process()
    done, memory = 0, {}

    def advance(name: str, count: int) -> None:
        nonlocal done
        done += count
        if done == requests // 10:
            memory["mib_at_tenth"] = process.memory_info().rss / 2**20

    with (
        running(_Stub) as port,
        tempfile.TemporaryDirectory() as folder,
        Journal(Path(folder) / "j", plan.digest(()), {}) as journal,
    ):
        target = HttpSpec(name="stub", url=f"http://127.0.0.1:{port}")
        work = carry_out(plan, [target], journal, timeout=30, resend=False, advance=advance)
        begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
        seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
        memory["mib_at_end"] = process.memory_info().rss / 2**20
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
