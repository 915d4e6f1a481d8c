"""What cannot be changed unseen: every bit of every column, the middle, the end and the head of a chain."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.ledger.conftest import make_entry

from samebits.errors import InputError, LedgerError
from samebits.ledger import Ledger
from samebits.ledger.anchors import read_anchors
from samebits.ledger.canonical import canonical, digest
from samebits.ledger.chain import Head, hash_of, link
from samebits.ledger.database import writing
from samebits.ledger.entry import Record
from samebits.ledger.fsck import Report, check
from samebits.ledger.tables import heads, records

COUNT = 6


@contextmanager
def changed(url: str, change: Callable[[sa.Connection], object]) -> Iterator[Ledger]:
    """A ledger of `COUNT` records after somebody with access to the database was there."""
    with Ledger.open(url, anchors=anchors_of(url)) as ledger:
        for i in range(COUNT):
            ledger.append([make_entry(i)])
    with Ledger.open(url) as ledger:
        with writing(ledger.engine) as connection:
            change(connection)
        yield ledger


def anchors_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///")).with_suffix(".anchors")


def faults(report: Report) -> set[str]:
    assert report.count == len(report.problems)
    return {problem.fault for problem in report.problems}


def rows(connection: sa.Connection) -> list[Any]:
    return list(connection.execute(sa.select(records).order_by(records.c.seq)))


def rewrite(connection: sa.Connection, start: int, count: int = COUNT) -> None:
    """Forges all from a position on, as one can who knows the format: consistent in itself."""
    old = rows(connection)
    connection.execute(records.delete().where(records.c.seq >= start))
    head = Head(start - 1, old[start - 2].hash) if start > 1 else Head()
    for row in old[start - 1 : count]:
        body = canonical(json.loads(row.body) | {"answer": "forged"})
        new = link(head, tenant=row.tenant, id=row.id, kind=row.kind, time_ns=row.time_ns, body=body)
        values = {column.name: getattr(new, column.name) for column in records.columns}
        connection.execute(records.insert().values(values))
        head = Head(new.seq, new.hash)
    connection.execute(heads.update().values(seq=head.seq, hash=head.hash))


def test_negative_control_an_untouched_ledger_is_good(sqlite_url: str) -> None:
    with changed(sqlite_url, lambda _: None) as ledger:
        report = check(ledger, anchors_of(sqlite_url))
    assert (report.count, report.records, report.anchors, report.notes) == (0, COUNT, 2, [])


def test_every_bit_of_every_column_is_covered() -> None:
    """Flips each bit of the texts and bodies, and many of the numbers, of one record; none goes unseen."""
    record = link(Head(7, digest(b"x")), tenant="té", id="id-1", kind="answer", time_ns=1796039129121795916, body=b"{}")
    assert hash_of(record) == record.hash
    flips = 0
    for name in ("tenant", "id", "kind", "hash", "body_digest", "prev"):
        text = getattr(record, name).encode()
        for bit in range(8 * len(text)):
            flipped = bytearray(text)
            flipped[bit // 8] ^= 1 << bit % 8
            altered = record._replace(**{name: bytes(flipped).decode("utf-8", "surrogateescape")})
            assert not valid(altered), (name, bit)
            flips += 1
    for name, bits in (("seq", 53), ("time_ns", 63)):
        for bit in range(bits):
            assert not valid(record._replace(**{name: getattr(record, name) ^ 1 << bit})), (name, bit)
            flips += 1
    for bit in range(8 * len(record.body or b"")):
        body = bytearray(record.body or b"")
        body[bit // 8] ^= 1 << bit % 8
        assert not valid(record._replace(body=bytes(body)))
        flips += 1
    assert flips > 1000


def valid(record: Record) -> bool:
    """As fsck sees it."""
    from samebits.ledger.fsck import check_chain

    report = Report()
    check_chain(report, record.tenant, [record])
    return not faults(report) - {"gap"}  # the record is alone


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_of_the_file_is_seen_or_moves_nothing(sqlite_url: str, seed: int) -> None:
    with changed(sqlite_url, lambda _: None) as ledger:
        before = list(ledger.records())
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    data = bytearray(path.read_bytes())
    bit = random.Random(seed).randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    try:
        ledger = Ledger.open(sqlite_url, readonly=True)
    except (LedgerError, InputError):
        return  # it is no database any more, or no ledger
    with ledger:
        if not check(ledger, anchors_of(sqlite_url)).count:
            assert list(ledger.records()) == before  # it hit what holds nothing


@pytest.mark.parametrize("column", ["id", "kind", "time_ns", "hash", "body_digest", "body"])
@pytest.mark.parametrize("seq", [1, 3, COUNT])
def test_a_changed_column_is_found_where_it_is(sqlite_url: str, column: str, seq: int) -> None:
    value: Any = {"time_ns": 5, "body": b"{}"}.get(column, "sha256:" + "0" * 64)
    row = records.c.seq == seq
    with changed(sqlite_url, lambda c: c.execute(records.update().where(row).values({column: value}))) as ledger:
        report = check(ledger)
    assert report.problems[0].seq == seq
    assert report.records == COUNT  # it went on


@pytest.mark.parametrize("column", ["tenant", "id", "kind", "hash"])
def test_a_text_that_is_no_utf8_is_found_and_the_check_goes_on(sqlite_url: str, column: str) -> None:
    damage = sa.text(f"UPDATE records SET {column} = CAST(X'C3FF41' AS TEXT) WHERE seq = 3")
    with changed(sqlite_url, lambda c: c.execute(damage)) as ledger:
        report = check(ledger)
    assert faults(report) & {"link", "gap"}
    assert report.records >= COUNT - 1


def test_a_record_that_is_removed_from_the_middle_is_found(sqlite_url: str) -> None:
    with changed(sqlite_url, lambda c: c.execute(records.delete().where(records.c.seq == 3))) as ledger:
        report = check(ledger)
    assert [(p.fault, p.seq) for p in report.problems] == [("gap", 3), ("link", 4)]


def cut(connection: sa.Connection, *, head: bool) -> None:
    connection.execute(records.delete().where(records.c.seq > 4))
    if head:
        connection.execute(heads.update().values(seq=4, hash=rows(connection)[-1].hash))


def test_a_removed_tail_is_found(sqlite_url: str) -> None:
    with changed(sqlite_url, lambda c: cut(c, head=False)) as ledger:
        assert faults(check(ledger)) == {"head"}
        assert faults(check(ledger, anchors_of(sqlite_url))) == {"head", "tail"}


def test_a_removed_tail_with_its_head_is_found_by_the_anchor(sqlite_url: str) -> None:
    with changed(sqlite_url, lambda c: cut(c, head=True)) as ledger:
        assert faults(check(ledger)) == set()  # negative control: nothing inside can tell
        [problem] = check(ledger, anchors_of(sqlite_url)).problems
    assert (problem.fault, problem.seq) == ("tail", COUNT)


def test_a_chain_that_is_removed_is_found_by_the_anchor(sqlite_url: str) -> None:
    def remove(connection: sa.Connection) -> None:
        connection.execute(records.delete())
        connection.execute(heads.delete())

    with changed(sqlite_url, remove) as ledger:
        assert faults(check(ledger)) == set()
        assert faults(check(ledger, anchors_of(sqlite_url))) == {"tail"}


@pytest.mark.parametrize("start", [1, 4, COUNT])
def test_a_forged_chain_is_found_by_the_anchor(sqlite_url: str, start: int) -> None:
    with changed(sqlite_url, lambda c: rewrite(c, start)) as ledger:
        assert faults(check(ledger)) == set()  # negative control
        assert faults(check(ledger, anchors_of(sqlite_url))) == {"anchor"}


def test_a_damaged_index_is_found(sqlite_url: str) -> None:
    with changed(sqlite_url, lambda _: None):
        pass
    path = sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, '(id)', '(kind)') WHERE name = 'records_id'")
        connection.commit()
    with Ledger.open(sqlite_url, readonly=True) as ledger:
        assert faults(check(ledger)) == {"database"}


def test_an_anchor_that_was_cut_short_is_passed_over_with_its_place(sqlite_url: str) -> None:
    """A crash in the middle of a line: the next anchor has a line of its own, and all others are read."""
    path = anchors_of(sqlite_url)
    with Ledger.open(sqlite_url, anchors=path) as ledger:
        ledger.append([make_entry(1)])
    whole = path.read_bytes()
    for size in (1, 40, 77, 120, len(whole) - 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with Ledger.open(sqlite_url, anchors=path) as ledger:
            ledger.append([make_entry(2)])
            report = check(ledger, path)
        lines = read_anchors(path)
        torn = size < len(whole) - 1  # without its end alone, a line still says everything
        assert (len(lines.anchors), lines.damaged) == (1 if torn else 2, {1: 0} if torn else {}), size
        assert report.count == 0
        assert [("line 1, at byte 0" in note) for note in report.notes] == [True] * torn


def test_anchors_that_cannot_be_read_or_written_are_refused(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="anchors"):
        Ledger.open(sqlite_url, anchors=tmp_path)
    with Ledger.open(sqlite_url) as ledger, pytest.raises(InputError, match="anchors"):
        check(ledger, tmp_path / "none")
