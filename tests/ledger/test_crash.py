"""kill -9 in the middle of writing: no acknowledged record is lost, none is half there, and it starts again."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ledger.conftest import make_entry

from samebits.ledger import Ledger
from samebits.ledger.fsck import check

ROOT = Path(__file__).parents[2]
Acknowledged = dict[tuple[str, int], tuple[str, str]]


def killed(url: str, round_: int, lines: int, threads: int = 3) -> Acknowledged:
    """Starts a writer, kills it when it has acknowledged some records, and returns all that it acknowledged."""
    command = [sys.executable, "-m", "tests.ledger.crash_writer", url, str(round_), str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += process.stdout.read().splitlines(keepends=True)
    whole = [line.decode().split() for line in said if line.endswith(b"\n")]
    return {(tenant, int(seq)): (hash_, id_) for tenant, seq, hash_, id_ in whole}


def survive(url: str, rounds: int, seed: int) -> int:
    """Kills writers; returns how many records were acknowledged, all of which are there."""
    draw, acknowledged = random.Random(seed), Acknowledged()
    for i in range(rounds):
        said = killed(url, i, draw.randrange(1, 60))
        assert said, "not exercised: it acknowledged nothing"
        assert not said.keys() & acknowledged.keys(), "a position was given twice"
        acknowledged |= said
        with Ledger.open(url) as ledger:
            report = check(ledger)
            assert report.count == 0, report.problems
            stored = {(record.tenant, record.seq): (record.hash, record.id) for record in ledger.records()}
        assert acknowledged.items() <= stored.items()
    return len(acknowledged)


def test_killed_writers_lose_nothing(url: str) -> None:
    assert survive(url, 3, seed=1) >= 3


@pytest.mark.proof
def test_killed_writers_lose_nothing_200_times(url: str) -> None:
    assert survive(url, 200, seed=2) > 1000


def test_negative_control_an_ending_that_is_not_synchronised_is_seen(sqlite_url: str, tmp_path: Path) -> None:
    """The same check on a ledger from which the end of the log was cut: records that were acknowledged are missing."""
    source, target = tmp_path / "source.db", Path(sqlite_url.removeprefix("sqlite:///"))
    with Ledger.open(f"sqlite:///{source}") as ledger:
        stored_one_by_one = [record for i in range(30) for record in ledger.append([make_entry(i)])]
        log = source.with_name("source.db-wal").read_bytes()
        target.write_bytes(source.read_bytes())
    acknowledged = {(record.tenant, record.seq): (record.hash, record.id) for record in stored_one_by_one}
    target.with_name(target.name + "-wal").write_bytes(log[: len(log) // 4])
    with Ledger.open(sqlite_url) as ledger:
        stored = {(record.tenant, record.seq): (record.hash, record.id) for record in ledger.records()}
    assert not acknowledged.items() <= stored.items()


def test_a_log_that_is_cut_anywhere_leaves_whole_records(sqlite_url: str, tmp_path: Path) -> None:
    """The last write cut at many bytes, as by a machine that lost its power: what is left is whole, and goes on."""
    source = tmp_path / "source.db"
    ledger = Ledger.open(f"sqlite:///{source}", anchors=tmp_path / "anchors")
    for i in range(3):
        ledger.append([make_entry(i)])
    files = [source, source.with_name("source.db-wal")]
    saved = [path.read_bytes() for path in files]
    ledger.close()
    assert len(saved[1]) > 1000
    target = Path(sqlite_url.removeprefix("sqlite:///"))
    found = set()
    for size in [*range(0, len(saved[1]), 997), len(saved[1])]:
        target.write_bytes(saved[0])
        target.with_name(target.name + "-wal").write_bytes(saved[1][:size])
        with Ledger.open(sqlite_url) as cut:
            records = list(cut.records())
            assert check(cut).count == 0
            anchored = check(cut, tmp_path / "anchors")
            assert (anchored.count > 0) == (len(records) < 3)  # a lost end is found by the anchor
            cut.append([make_entry(9)])
            assert [record.seq for record in cut.records()] == list(range(1, len(records) + 2))
            assert check(cut).count == 0
        found.add(len(records))
        target.unlink()
    assert {0, 1, 2, 3} <= found
    shutil.rmtree(tmp_path, ignore_errors=True)
