"""What the ledger costs: answers per second with and without it, appending, and checking.

``python -m benchmarks.ledger [--json FILE]``. Answers with and without a ledger alternate in one process, over the
server's own application without a socket, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from samebits import LLM
from samebits.api.app import make_app
from samebits.api.config import make_config
from samebits.cli.answering import post
from samebits.ledger import AsyncLedger, Digests, Entry, Ledger, ModelRef
from samebits.ledger.fsck import check

NAME: Final = "smollm2"
CONCURRENCY, REQUESTS, NEW_TOKENS, ROUNDS = 32, 64, 32, 5
APPENDS, BATCH, RECORDS = 200, 256, 100_000
PATH: Final = "/v1/chat/completions"


def entry_of(number: int, request: dict[str, Any], answer: dict[str, Any]) -> Entry:
    """An entry as the gateway makes them."""
    block = answer["samebits"]
    return Entry(
        id=f"{answer['id']}-{number}",
        tenant="default",
        kind="answer",
        route=PATH,
        model=ModelRef(asked=NAME, name=NAME, fingerprint=block["fingerprint"], engine="embedded"),
        level_declared=block["level"],
        request=request,
        params=block["params"],
        seed=block["seed"],
        digests=Digests(
            prompt_tokens=block["prompt_tokens_sha256"],
            output_tokens=block["output_tokens_sha256"],
            logprobs=block["logprobs_sha256"],
        ),
        answer=answer,
    )


def request_of(number: int) -> dict[str, Any]:
    """A short conversation; with log-probabilities, which make the largest records."""
    messages = [{"role": "user", "content": f"{number}. Once upon a time"}]
    return {
        "model": NAME,
        "messages": messages,
        "max_tokens": NEW_TOKENS,
        "ignore_eos": True,
        "logprobs": number % 2 == 0,
    }


async def answer_all(app: Any, ledger: AsyncLedger | None) -> list[Entry]:
    """All requests, so many at a time; each is answered when its record is stored."""
    numbers, done = iter(range(REQUESTS)), list[Entry]()

    async def work() -> None:
        for number in numbers:
            status, answer = await post(app, PATH, request_of(number))
            assert status == 200, answer
            entry = entry_of(number, request_of(number), answer)
            if ledger is not None:
                await ledger.add(entry)
            done.append(entry)

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return done


async def overhead(folder: Path) -> tuple[list[float], list[Entry]]:
    """Time with a ledger by time without, of each round; and the entries of the last."""
    with LLM(NAME) as llm:
        app = make_app(make_config({"models": {NAME: {"path": NAME}}}), {NAME: llm})
        async with app.router.lifespan_context(app):
            ledger = AsyncLedger(Ledger.open(f"sqlite:///{folder}/served.db", anchors=folder / "anchors"))
            entries, ratios = await answer_all(app, None), list[float]()
            for i in range(ROUNDS):
                seconds = {}
                for with_ledger in (True, False) if i % 2 else (False, True):
                    begin = time.perf_counter()
                    entries = await answer_all(app, ledger if with_ledger else None)
                    seconds[with_ledger] = time.perf_counter() - begin
                ratios.append(seconds[True] / seconds[False])
            await ledger.close()
    return ratios, entries


def storing(folder: Path, entries: list[Entry]) -> dict[str, float]:
    """Milliseconds of one append, records per second in batches and of a check, bytes of a record."""
    with Ledger.open(f"sqlite:///{folder}/many.db") as ledger:
        begin = time.perf_counter()
        for i in range(APPENDS):
            ledger.append([entries[i % len(entries)]])
        single = (time.perf_counter() - begin) / APPENDS
        begin = time.perf_counter()
        batch = [entries[i % len(entries)] for i in range(BATCH)]
        sealed = [ledger.seal(entry) for entry in batch]
        sealing = (time.perf_counter() - begin) / BATCH
        begin = time.perf_counter()
        stored = 0
        while stored < RECORDS:
            stored += len(ledger.append_sealed(sealed))
        batched = stored / (time.perf_counter() - begin)
        begin, cpu = time.perf_counter(), time.thread_time()
        report = check(ledger)
        wall, cpu = time.perf_counter() - begin, time.thread_time() - cpu
        assert report.count == 0
    return {
        "append_ms": single * 1e3,
        "seal_ms": sealing * 1e3,
        "batched_per_s": batched,
        "fsck_per_s": report.records / wall,
        "fsck_per_cpu_s": report.records / cpu,
        "record_bytes": statistics.mean(len(item.body) for item in sealed),
    }


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        ratios, entries = asyncio.run(overhead(Path(name)))
        rows: dict[str, Any] = {"time_with_by_without": ratios, "median": statistics.median(ratios)}
        rows |= storing(Path(name), entries)
    table = Table("what", "measured", "wanted")
    table.add_row("time of answers, with by without", f"{rows['median']:.3f}", "≤ 1.10")
    table.add_row("one append, ms", f"{rows['append_ms']:.2f}", "")
    table.add_row("making a body, ms", f"{rows['seal_ms']:.2f}", "")
    table.add_row("appends in batches of 256, per s", f"{rows['batched_per_s']:,.0f}", "")
    table.add_row("fsck, records per s", f"{rows['fsck_per_s']:,.0f}", "≥ 50,000")
    table.add_row("fsck, records per s of one processor", f"{rows['fsck_per_cpu_s']:,.0f}", "")
    table.add_row("bytes of a body", f"{rows['record_bytes']:,.0f}", "")
    Console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
