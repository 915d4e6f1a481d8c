"""The writer thread: everything that was promised is stored, entries that wait go together, one bad one goes alone."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.ledger.conftest import make_entry

from samebits.errors import InputError, LedgerError
from samebits.ledger import AsyncLedger, Ledger
from samebits.ledger.fsck import check


class Counting(Ledger):
    """Counts transactions; each waits for leave to begin."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.batches: list[int] = []
        self.leave = threading.Event()

    def append_sealed(self, sealed: Any) -> Any:
        assert self.leave.wait(600)
        self.batches.append(len(sealed))
        return super().append_sealed(sealed)


def test_entries_that_wait_are_committed_together(url: str) -> None:
    async def run() -> list[int]:
        ledger = Counting.open(url)
        assert isinstance(ledger, Counting)
        front = AsyncLedger(ledger)
        tasks = [asyncio.ensure_future(front.add(make_entry(i))) for i in range(100)]
        await asyncio.sleep(0)
        ledger.leave.set()
        found = await asyncio.gather(*tasks)
        assert sorted(record.seq for record in found) == list(range(1, 101))
        assert [record.id for record in found] == [make_entry(i).id for i in range(100)]
        assert check(ledger).count == 0
        await front.close()
        await front.close()
        return ledger.batches

    batches = asyncio.run(run())
    assert sum(batches) == 100
    assert len(batches) <= 3


def test_what_comes_in_one_turn_of_the_loop_is_one_transaction(sqlite_url: str) -> None:
    """The writer is free, and would begin with the first one."""

    async def add(front: AsyncLedger, number: int) -> None:
        time.sleep(0.005)  # what a request computes before; other threads have their turn
        await front.add(make_entry(number))

    async def run() -> list[int]:
        ledger = Counting.open(sqlite_url)
        assert isinstance(ledger, Counting)
        ledger.leave.set()
        front = AsyncLedger(ledger)
        for _ in range(5):
            await asyncio.gather(*(add(front, i) for i in range(32)))
        for i in range(3):  # negative control: what comes alone waits for nobody
            await add(front, i)
        await front.close()
        return ledger.batches

    assert asyncio.run(run()) == [32] * 5 + [1] * 3


def test_a_bad_entry_fails_alone(sqlite_url: str) -> None:
    async def run() -> list[Any]:
        ledger = Counting.open(sqlite_url)
        assert isinstance(ledger, Counting)
        front = AsyncLedger(ledger)
        broken = make_entry(4, params={"temperature": 1})  # not as an entry should be: an error that is not ours
        entries = [make_entry(1), make_entry(2, answer=float("nan")), broken, make_entry(3)]
        tasks = [asyncio.ensure_future(front.add(entry)) for entry in entries]
        await asyncio.sleep(0)
        ledger.leave.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await front.close()
        return list(found)

    first, second, third, fourth = asyncio.run(run())
    assert (first.seq, fourth.seq) == (1, 2)
    assert isinstance(second, InputError)
    assert isinstance(third, AttributeError)


def test_who_goes_away_is_recorded_all_the_same(sqlite_url: str) -> None:
    async def run() -> None:
        ledger = Counting.open(sqlite_url)
        assert isinstance(ledger, Counting)
        front = AsyncLedger(ledger)
        task = asyncio.ensure_future(front.add(make_entry(1)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ledger.leave.set()
        await front.close()

    asyncio.run(run())
    with Ledger.open(sqlite_url, readonly=True) as ledger:
        assert [record.id for record in ledger.records()] == [make_entry(1).id]


def test_room_is_bounded(sqlite_url: str) -> None:
    async def run() -> None:
        ledger = Counting.open(sqlite_url)
        assert isinstance(ledger, Counting)
        front = AsyncLedger(ledger, capacity=2)
        tasks = [asyncio.ensure_future(front.add(make_entry(i))) for i in range(5)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert front.waiting <= 2
        ledger.leave.set()
        assert len(await asyncio.gather(*tasks)) == 5
        await front.close()
        assert max(ledger.batches) <= 2

    asyncio.run(run())


def test_a_closed_ledger_and_a_broken_one_say_so(sqlite_url: str) -> None:
    async def run() -> None:
        front = AsyncLedger(Ledger.open(sqlite_url))
        await front.add(make_entry(1))
        with front.ledger.engine.connect() as connection:
            connection.exec_driver_sql("DROP TABLE records")
            connection.commit()
        with pytest.raises(LedgerError, match="cannot be written"):
            await front.add(make_entry(2))
        await front.close()
        with pytest.raises(LedgerError, match="closed"):
            await front.add(make_entry(3))

    asyncio.run(run())
