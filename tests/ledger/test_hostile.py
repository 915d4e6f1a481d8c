"""Ledgers, lines and anchors that somebody has tampered with in ways that no careful program would: nothing ends in a
traceback, nothing false is signed, replayed or let in.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ledger.conftest import make_entry

from samebits.errors import InputError, LedgerError, MeasurementError
from samebits.ledger import Ledger, Privacy
from samebits.ledger.anchors import read_anchors
from samebits.ledger.chain import Head, link
from samebits.ledger.entry import Record
from samebits.ledger.fsck import check, check_lines
from samebits.ledger.keys import Signer
from samebits.ledger.lines import from_line, import_lines, to_line
from samebits.ledger.receipt import receipt_of, verify
from samebits.ledger.replay import Recorded
from samebits.ledger.tombstone import prune

COUNT = 3
# What an INTEGER, TEXT or BLOB column of SQLite holds after damage, or by somebody's hand.
VALUES = ("x", b"\x00\xff", 1.5, -5, 2**63 - 1, "", "5", b"")
COLUMNS = {
    "records": ("tenant", "seq", "id", "kind", "time_ns", "hash", "body_digest", "body"),
    "heads": ("tenant", "seq", "hash"),
}


def made(folder: Path) -> str:
    url = f"sqlite:///{folder}/ledger.db"
    with Ledger.open(url, anchors=folder / "anchors") as ledger:
        for i in range(COUNT):
            ledger.append([make_entry(i)])
    return url


def put(folder: Path, table: str, column: str, value: Any) -> bool:
    """Writes a value of any type into the second record, or the head; False where a constraint forbids it."""
    where = " WHERE seq = 2" if table == "records" else ""
    with closing(sqlite3.connect(folder / "ledger.db", isolation_level=None)) as connection:
        try:
            connection.execute(f"UPDATE {table} SET {column} = ?{where}", (value,))
        except sqlite3.IntegrityError:
            return False
    return True


def refusal(call: Callable[[], object]) -> str | None:
    """What a ledger says that does not do something; None where it does it."""
    try:
        call()
    except LedgerError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("table", "column"), [(t, c) for t, columns in COLUMNS.items() for c in columns])
def test_a_column_of_another_type_is_found_and_ends_nothing(tmp_path: Path, table: str, column: str) -> None:
    url, tried = made(tmp_path), 0
    whole = (tmp_path / "ledger.db").read_bytes()
    for value in VALUES:
        for path in tmp_path.glob("ledger.db*"):
            path.unlink()
        (tmp_path / "ledger.db").write_bytes(whole)
        if not put(tmp_path, table, column, value):
            continue
        tried += 1
        with Ledger.open(url, readonly=True) as ledger:
            report = check(ledger, tmp_path / "anchors")
            assert report.count, value
            for read in (lambda: list(ledger.records()), lambda: ledger.find(make_entry(1).id)):
                said = refusal(read)
                assert said is None or "damaged" in said or "cannot be read" in said
        with Ledger.open(url) as ledger:
            for change in (lambda: ledger.append([make_entry(9)]), lambda: prune(ledger, 2**62, "test")):
                said = refusal(change)
                assert said is None or "damaged" in said or "cannot be" in said
    assert tried > 3


def test_negative_control_a_ledger_that_nobody_touched(tmp_path: Path) -> None:
    with Ledger.open(made(tmp_path)) as ledger:
        report = check(ledger, tmp_path / "anchors")
        assert (report.count, report.records, report.notes) == (0, COUNT, [])
        ledger.append([make_entry(9)])


# ---- what was changed is not passed on -------------------------------------------------------------------------------


def forged(record: Record) -> Record:
    """The record with another answer's digest in its body, header and hash as they were."""
    body = json.loads(record.body or b"")
    body["digests"]["answer"] = "sha256:" + "f" * 64
    return record._replace(body=json.dumps(body).encode())


def test_a_changed_record_is_neither_signed_nor_replayed(sqlite_url: str) -> None:
    signer = Signer.new()
    with Ledger.open(sqlite_url) as ledger:
        [record] = ledger.append([make_entry(1)])
    assert verify(receipt_of(record, signer), signer.public).record.hash == record.hash
    assert Recorded.of(record).request == make_entry(1).request
    for changed in (forged(record), record._replace(time_ns=5), record._replace(prev="sha256:" + "1" * 64)):
        with pytest.raises(InputError, match="was changed"):
            receipt_of(changed, signer)
        with pytest.raises(MeasurementError, match="was changed"):
            Recorded.of(changed)


# ---- lines -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with Ledger.open(f"sqlite:///{tmp_path_factory.mktemp('one')}/ledger.db") as ledger:
        [record] = ledger.append([make_entry(1)])
    return to_line(record)


@pytest.mark.parametrize(
    "rewritten",
    [
        lambda text: text.replace('"seq":1', '"seq":1.0'),
        lambda text: text.replace('"seq":1', '"seq":true'),
        lambda text: text.replace('"seq":1', '"seq":Infinity'),
        lambda text: text.replace('"seq":1', '"seq":0'),
        lambda text: text.replace('"seq":1', f'"seq":{10**400}'),
        lambda text: text.replace('"seq":1', '"seq": 1'),
        lambda text: text.replace('"id":', '"extra":1,"id":'),
        lambda text: text.replace('"time":"', '"time":"0'),
        lambda text: text.replace('"time":"', '"time":"99999999999'),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text[:-2] + ',"seq":1}\n',
        lambda text: "[" * 100_000 + "\n",
    ],
)
def test_there_is_one_way_to_write_a_line(line: bytes, rewritten: Any) -> None:
    assert to_line(from_line(line)) == line
    other = rewritten(line.decode()).encode()
    assert other != line
    with pytest.raises(ValueError, match=r"."):
        from_line(other)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_byte_of_a_line_can_be_changed(line: bytes, data: st.DataObject, tmp_path: Path) -> None:
    place = data.draw(st.integers(0, len(line) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != line[place]))
    path = tmp_path / "changed.jsonl"
    path.write_bytes(line[:place] + bytes([byte]) + line[place + 1 :])
    assert check_lines(path).count
    with pytest.raises(InputError), Ledger.open(f"sqlite:///{tmp_path}/copy.db") as ledger:
        import_lines(ledger, path)


@pytest.mark.parametrize(
    "fields",
    [{"tenant": "t" * 201}, {"tenant": "a\x00b"}, {"id": 'a"b'}, {"kind": "other"}, {"kind": 'answer","x":"'}],
)
def test_what_could_never_be_recorded_is_not_let_in(url: str, tmp_path: Path, fields: dict[str, str]) -> None:
    """The hash is right: whoever can write lines can compute it."""
    given_: dict[str, Any] = {"tenant": "t", "id": "i", "kind": "answer", "time_ns": 5, "body": b"{}"}
    for changes, good in ((fields, False), ({}, True)):
        path = tmp_path / "forged.jsonl"
        path.write_bytes(to_line(link(Head(), **(given_ | changes))))
        with Ledger.open(url) as ledger:
            if good:
                assert import_lines(ledger, path).added == 1
            else:
                with pytest.raises(InputError):
                    import_lines(ledger, path)
                assert ledger.heads() == {}


@pytest.mark.parametrize("kind", ["reversed", "twice", "foreign"])
def test_lines_in_another_order_are_not_let_in(url: str, tmp_path: Path, kind: str) -> None:
    with Ledger.open(f"sqlite:///{tmp_path}/a.db") as ledger:
        one = [to_line(record) for record in ledger.append([make_entry(1), make_entry(2), make_entry(3)])]
    with Ledger.open(f"sqlite:///{tmp_path}/b.db") as ledger:
        other = [to_line(record) for record in ledger.append([make_entry(1), make_entry(2)])]
    lines = {"reversed": one[::-1], "twice": [one[0], one[0]], "foreign": [one[0], other[1]]}[kind]
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"".join(lines))
    with Ledger.open(url) as ledger:
        with pytest.raises(InputError, match="does not follow"):
            import_lines(ledger, path)
        assert ledger.heads() == {}
        path.write_bytes(b"".join(one))
        assert import_lines(ledger, path).added == 3


# ---- anchors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damaged",
    [b"[" * 100_000, b'{"anchor":"samebits-anchor-1","seq":1,"tenant":"t","hash":"h","time":Infinity}', b"\xff"],
)
def test_a_line_of_anchors_that_says_nothing_is_passed_over(tmp_path: Path, damaged: bytes) -> None:
    url = made(tmp_path)
    anchors = tmp_path / "anchors"
    anchors.write_bytes(damaged + b"\n" + anchors.read_bytes())
    assert list(read_anchors(anchors).damaged) == [1]
    with Ledger.open(url, readonly=True) as ledger:
        report = check(ledger, anchors)
    assert (report.count, report.anchors, len(report.notes)) == (0, 2, 1)


def test_a_chain_without_an_anchor_is_noted(tmp_path: Path) -> None:
    url = made(tmp_path)
    with Ledger.open(url) as ledger:
        ledger.append([make_entry(5, tenant="other")])
        assert check(ledger, tmp_path / "anchors").notes == ["other: no head of this chain is anchored"]


# ---- texts that take long --------------------------------------------------------------------------------------------


def test_a_long_text_is_redacted_in_the_time_of_reading_it() -> None:
    """One that is read again from each letter on would take minutes, and the server with it."""
    privacy, size = Privacy("redacted"), 300_000
    start = time.process_time()
    for text in ("a" * size, "a." * (size // 2), "a@" * (size // 2), "a-" * (size // 2) + "@", "1" * size):
        privacy.payload(text)
    assert time.process_time() - start < 30


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("mail ada@example.org.", "mail [redacted:email]."),
        ("<ada.l+x@mail.example.org>", "<[redacted:email]>"),
        ("a@b.co_c@d.org", "[redacted:email]@d.org"),
        ("a@b.co..c@d.org end", "[redacted:email]@d.org end"),
        ("x@@y@z.com", "x@@[redacted:email]"),
        ("a@host_b@c.org", "a@[redacted:email]"),
        ("one@a.org,two@b.org", "[redacted:email],[redacted:email]"),
        ("no mail @ all, a@b", "no mail @ all, a@b"),
    ],
)
def test_addresses_are_found(text: str, kept: str) -> None:
    assert Privacy("redacted").payload(text) == kept


# ---- files that were cut off -----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Files:
    """A database and its log as they are while it is open, the database after it was closed, and the anchors."""

    database: bytes
    log: bytes
    whole: bytes
    anchors: bytes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """What a ledger of `COUNT` records leaves when its machine loses power, and the anchors kept elsewhere."""
    folder = tmp_path_factory.mktemp("cut")
    with Ledger.open(f"sqlite:///{folder}/ledger.db", anchors=folder / "anchors") as ledger:
        for i in range(COUNT):
            ledger.append([make_entry(i)])
        database, log = ((folder / name).read_bytes() for name in ("ledger.db", "ledger.db-wal"))
    return Files(database, log, (folder / "ledger.db").read_bytes(), (folder / "anchors").read_bytes())


def check_cut(folder: Path, files: Files, database: bytes, log: bytes | None) -> int | None:
    """How many records are there; None where the file is refused. Fewer than there were are found to be fewer."""
    for path in folder.glob("ledger.db*"):
        path.unlink()
    (folder / "anchors").write_bytes(files.anchors)
    (folder / "ledger.db").write_bytes(database)
    if log is not None:
        (folder / "ledger.db-wal").write_bytes(log)
    try:
        with Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
            report = check(ledger, folder / "anchors")
            assert report.count or report.records == COUNT
            if not check(ledger).count:  # what is there holds together, and goes on
                ledger.append([make_entry(99)])
                assert check(ledger).records == report.records + 1
            return report.records
    except (LedgerError, InputError):
        return None


def test_negative_control_files_that_are_whole(files: Files, tmp_path: Path) -> None:
    assert check_cut(tmp_path, files, files.database, files.log) == COUNT
    assert check_cut(tmp_path, files, files.whole, None) == COUNT


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(of_log=st.booleans(), share=st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_at_any_byte_is_found_or_refused(
    files: Files, tmp_path: Path, of_log: bool, share: float
) -> None:
    """C09, for SQLite: of the log, what is complete before the cut is there; nothing is missing unseen."""
    if of_log:
        log = files.log
        found = check_cut(tmp_path, files, files.database, log[: int(share * len(log))])
        assert found is None or found < COUNT
    else:
        check_cut(tmp_path, files, files.whole[: max(1, int(share * len(files.whole)))], None)
