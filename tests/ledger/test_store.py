"""Appending and reading back, on both databases."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.ledger.conftest import make_entry

from samebits.errors import InputError
from samebits.ledger import Ledger
from samebits.ledger.baselines import Baseline, keep_baseline, read_baseline
from samebits.ledger.canonical import GENESIS
from samebits.ledger.chain import intact
from samebits.ledger.database import _turn_to_wal, parse_url
from samebits.ledger.fsck import check
from samebits.ledger.tables import REVISION, metadata

SPAWN = multiprocessing.get_context("spawn")
FORK = multiprocessing.get_context("fork")


def test_what_is_appended_is_read_back(url: str) -> None:
    with Ledger.open(url) as ledger:
        first = ledger.append([make_entry(1), make_entry(2, tenant="other")])
        second = ledger.append([make_entry(3)])
    with Ledger.open(url, readonly=True) as ledger:
        assert list(ledger.records()) == [first[0], second[0], first[1]]
        assert list(ledger.records("default", after=1)) == second
        assert ledger.find(make_entry(3).id) == second
        assert ledger.at("other", 1) == first[1]
        assert ledger.at("other", 2) is None
        assert check(ledger).count == 0
    assert [r.seq for r in (*first, *second)] == [1, 1, 2]
    assert (first[0].prev, second[0].prev) == (GENESIS, first[0].hash)
    assert all(intact(record) for record in first + second)
    body = json.loads(first[0].body or b"")
    assert body["request"] == make_entry(1).request
    assert body["answer"] == make_entry(1).answer
    assert body["params"]["temperature"] == {"value": 0, "origin": "request"}


def test_a_batch_is_stored_whole_or_not_at_all(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.append([make_entry(1)])
        with pytest.raises(InputError, match="answer"):
            ledger.append([make_entry(2), make_entry(3, answer={"x": float("nan")})])
        assert [record.seq for record in ledger.records()] == [1]
        assert ledger.append([]) == []


def test_a_seed_of_64_bits_is_kept(url: str) -> None:
    with Ledger.open(url) as ledger:
        [record] = ledger.append([make_entry(seed=2**63 - 1)])
    assert json.loads(record.body or b"")["seed"] == str(2**63 - 1)


def write_many(url: str, start: int, count: int, threads: int) -> None:
    """Appends from several threads; the target of a process."""
    with Ledger.open(url) as ledger:

        def run(thread: int) -> None:
            for i in range(count):
                ledger.append([make_entry(start + thread * count + i, tenant=f"t{i % 2}")])

        workers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def test_two_processes_of_eight_threads_write_one_chain(url: str) -> None:
    processes = [SPAWN.Process(target=write_many, args=(url, p * 1000, 10, 8)) for p in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    with Ledger.open(url, readonly=True) as ledger:
        found = list(ledger.records())
        report = check(ledger)
    assert (report.count, report.records) == (0, 160)
    assert len({record.id for record in found}) == 160
    assert {tenant: head.seq for tenant, head in report.heads.items()} == {"t0": 80, "t1": 80}


def open_and_append(url: str, barrier: Any, number: int) -> None:
    """Makes the ledger, at the same time as others, and appends; the target of a process."""
    barrier.wait()
    with Ledger.open(url) as ledger:
        for i in range(5):
            ledger.append([make_entry(number * 100 + i, tenant=f"t{i % 2}")])


def test_eight_processes_make_one_ledger_at_the_same_time(tmp_path: Path) -> None:
    for number in range(3):
        url, barrier = f"sqlite:///{tmp_path}/{number}.db", FORK.Barrier(8)
        processes = [FORK.Process(target=open_and_append, args=(url, barrier, p)) for p in range(8)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 8
        with Ledger.open(url, readonly=True) as ledger:
            report = check(ledger)
        assert (report.count, report.records) == (0, 40)


class Busy:
    """A connection to a file that another process turns into one with a log."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.times, self.asked = code, times, 0

    def execute(self, statement: str) -> sqlite3.Cursor:
        self.asked += 1
        if self.asked <= self.times:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = self.code
            raise error
        return sqlite3.connect(":memory:").execute(statement)


def test_a_file_that_another_process_turns_is_waited_for() -> None:
    busy = Busy(sqlite3.SQLITE_BUSY_RECOVERY, 3)
    _turn_to_wal(busy)  # type: ignore[arg-type]
    assert busy.asked == 4
    full = Busy(sqlite3.SQLITE_FULL, 1)
    with pytest.raises(sqlite3.OperationalError):
        _turn_to_wal(full)  # type: ignore[arg-type]
    assert full.asked == 1


def test_a_clock_that_goes_back_is_flagged_and_does_not_reorder(url: str) -> None:
    hour = 3600 * 10**9
    times = iter([10 * hour, 9 * hour, 12 * hour])
    with Ledger.open(url, clock=lambda: next(times)) as ledger:
        for i in range(3):
            ledger.append([make_entry(i)])
        found = list(ledger.records())
        report = check(ledger)
    assert [(record.seq, record.time_ns // hour) for record in found] == [(1, 10), (2, 9), (3, 12)]
    assert report.count == 0
    [note] = report.notes
    assert "went back 3600.000 s before record 2" in note


@pytest.mark.parametrize("bad", ["", "ledger.db", "sqlite://", "sqlite:///:memory:", "mysql://u:hunter2@h/d", "://"])
def test_a_url_that_is_none_is_refused_without_its_password(bad: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_url(bad)
    assert caught.value.field == "ledger.url"
    assert "hunter2" not in str(caught.value)


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        Ledger.open(f"sqlite:///{tmp_path}/none.db", readonly=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    with pytest.raises(InputError, match="no ledger"):
        Ledger.open(f"sqlite:///{tmp_path}/empty.db", readonly=True)
    with pytest.raises(InputError, match="no folder"):
        Ledger.open(f"sqlite:///{tmp_path}/none/ledger.db")


def test_the_migrations_make_the_tables(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with Ledger.open(url) as ledger, ledger.engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert context.get_current_revision() == REVISION
        differences: list[Any] = compare_metadata(context, metadata)
    assert differences == []


def test_a_ledger_of_a_later_version_is_refused(url: str) -> None:
    with Ledger.open(url) as ledger, ledger.engine.connect() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        connection.commit()
    with pytest.raises(InputError, match="later version"):
        Ledger.open(url)
    with pytest.raises(InputError, match="later version of samebits"):
        Ledger.open(url, readonly=True)


def test_a_ledger_of_an_earlier_form_is_brought_up(url: str) -> None:
    with Ledger.open(url) as ledger:
        before = ledger.append([make_entry(1)])
        with ledger.engine.connect() as connection:
            for name in ("probe", "baselines"):
                connection.execute(sa.text(f"DROP TABLE {name}"))
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
            connection.commit()
    with Ledger.open(url, readonly=True) as ledger:  # an archive cannot be changed, and is evidence all the same
        assert list(ledger.records()) == before
        assert check(ledger).count == 0
        with ledger.engine.connect() as connection:
            assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "0001"
    with Ledger.open(url) as ledger:
        assert list(ledger.records()) == before
        keep_baseline(ledger, Baseline("r", "a", "m", "m-1", None))


def test_a_baseline_is_that_of_a_route_an_address_and_a_name(url: str) -> None:
    with Ledger.open(url) as ledger:
        first, second = (Baseline("r", "http://a", "m", model, "fp") for model in ("m-1", "m-2"))
        assert read_baseline(ledger, "r", "http://a", "m") is None
        for baseline in (first, second, replace(first, asked="n"), replace(first, address="http://b", model=None)):
            keep_baseline(ledger, baseline)
    with Ledger.open(url, readonly=True) as ledger:
        assert read_baseline(ledger, "r", "http://a", "m") == second
        assert read_baseline(ledger, "r", "http://a", "n") == replace(first, asked="n")
        assert read_baseline(ledger, "r", "http://b", "m") == replace(first, address="http://b", model=None)
        assert read_baseline(ledger, "q", "http://a", "m") is None
