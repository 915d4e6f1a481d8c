"""Checking a ledger: every record, every link, every head, and the anchors. Nothing is repaired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

import sqlalchemy as sa

from samebits.counted import counted
from samebits.errors import LedgerError
from samebits.ledger.anchors import Anchor, Stamp, read_anchors
from samebits.ledger.canonical import digest
from samebits.ledger.chain import Head, hash_of, typed
from samebits.ledger.database import reading
from samebits.ledger.entry import Record
from samebits.ledger.lines import LineDamagedError, Lines
from samebits.ledger.spans import Spans
from samebits.ledger.store import Ledger, read_chain, read_heads, tenants_of
from samebits.ledger.tombstone import TOMBSTONE, spans_of

MOST_SHOWN: Final = 1000  # problems that are kept; the rest is counted

Fault = Literal["body", "link", "gap", "position", "head", "tail", "anchor", "pruned", "tombstone", "database", "line"]


@dataclass(frozen=True)
class Problem:
    """What is wrong, and where.

    Attributes:
        fault: ``body`` or ``link``: a record, or its link to the one before, was changed; ``gap``: records are missing
            in the middle; ``position``: a chain begins before 1; ``head``: the table of heads contradicts the records;
            ``tail``: an anchor is beyond the chain's end; ``anchor``: a record is not the one that was anchored;
            ``pruned``: a body is missing without a tombstone; ``tombstone``: one that says nothing; ``database``: the
            database itself is damaged; ``line``: a line of an export is.
        seq: position in the tenant's chain; 0 where there is none.
    """

    fault: Fault
    tenant: str
    seq: int
    said: str


@dataclass
class Report:
    """What was found.

    Attributes:
        records: that were read.
        pruned: of these, without body.
        problems: the first ``MOST_SHOWN``.
        count: of all problems.
        notes: what is remarkable and not wrong: clocks that went back, lines of anchors that were cut short.
        heads: the last record of each chain, as read.
        anchors: that were compared.
    """

    records: int = 0
    pruned: int = 0
    problems: list[Problem] = field(default_factory=list)
    count: int = 0
    notes: list[str] = field(default_factory=list)
    heads: dict[str, Head] = field(default_factory=dict)
    anchors: int = 0

    def add(self, fault: Fault, tenant: str, seq: int, said: str) -> None:
        """Adds a problem."""
        self.count += 1
        if len(self.problems) < MOST_SHOWN:
            self.problems.append(Problem(fault, tenant, seq, said))

    def note(self, said: str) -> None:
        """Adds a note, of which no more than ``MOST_SHOWN`` are kept."""
        if len(self.notes) < MOST_SHOWN:
            self.notes.append(said)


def check(ledger: Ledger, anchors: Path | None = None, tsa_root: Path | None = None) -> Report:
    """Checks a whole ledger, in one state of it, while others may go on writing.

    Args:
        anchors: a file of anchored heads.
        tsa_root: certificate under which the timestamps in that file are to be signed; else they are not looked at.

    Raises:
        InputError: the anchors or the certificate cannot be read.
        LedgerError: the database cannot be reached.
    """
    report = Report()
    noted = _noted(report, anchors, tsa_root)
    with ThreadPoolExecutor(1, "samebits-fsck") as beside:
        database = beside.submit(_damage, ledger)
        _check_chains(report, ledger, noted)
        for said in database.result():
            report.add("database", "", 0, said)
    return report


def check_lines(path: Path, anchors: Path | None = None, tsa_root: Path | None = None) -> Report:
    """Checks an export, each chain from the first of its records in the file on.

    Raises:
        InputError: the file or the anchors cannot be read.
    """
    report, lines = Report(), Lines(path)
    noted = _noted(report, anchors, tsa_root)
    try:
        for tenant, chain in groupby(lines, lambda record: record.tenant):
            if tenant in report.heads:
                report.add("position", tenant, 0, "the chain is in more than one piece")
            check_chain(report, tenant, chain, noted.pop(tenant, ()))
    except LineDamagedError as error:
        report.add("line", "", error.line, f"{error.message}; what is behind it was not read")
    if (torn := lines.torn) is not None:
        report.add(
            "line",
            "",
            torn.line,
            f"line {torn.line}, at byte {torn.position}, is cut short: {counted(torn.size, 'byte')}",
        )
    for tenant, rest in noted.items():
        check_chain(report, tenant, (), rest)
    return report


def _noted(report: Report, anchors: Path | None, tsa_root: Path | None) -> dict[str, list[Anchor]]:
    """Anchors by tenant; lines that say nothing become notes."""
    noted: dict[str, list[Anchor]] = {}
    if anchors is not None:
        read = read_anchors(anchors)
        if tsa_root is not None:
            _check_stamps(report, read.stamps, tsa_root)
        for number, position in read.damaged.items():
            report.note(f"anchors: line {number}, at byte {position}, is cut short or damaged, and was passed over")
        for anchor in read.anchors:
            noted.setdefault(anchor.tenant, []).append(anchor)
        report.anchors = len(read.anchors)
    return noted


def _check_stamps(report: Report, stamps: Sequence[Stamp], root: Path) -> None:
    from samebits.ledger.timestamp import read_root, verified

    certificate = read_root(root)
    for stamp in stamps:
        try:
            moment = verified(stamp.response, stamp.data, certificate)
        except ValueError as error:
            report.add("anchor", "", stamp.line, f"anchors: the timestamp of line {stamp.line} does not hold: {error}")
        else:
            report.note(f"anchors: the lines before line {stamp.line} existed at {moment.isoformat()}")
    if not stamps:
        report.add("anchor", "", 0, "anchors: there is no timestamp")


def _check_chains(report: Report, ledger: Ledger, noted: Mapping[str, list[Anchor]]) -> None:
    try:
        with reading(ledger.engine) as connection, _any_bytes(connection):
            heads = read_heads(connection)
            for tenant in dict.fromkeys((*tenants_of(connection), *sorted(noted))):
                if not _is_unicode(tenant):
                    report.add("link", ascii(tenant), 0, "the tenant of a record was changed: its name is no UTF-8")
                    continue
                check_chain(report, tenant, read_chain(connection, tenant), noted.get(tenant, ()))
                _check_head(report, tenant, heads.get(tenant))
    except LedgerError as error:
        report.add("database", "", 0, str(error))


@contextmanager
def _any_bytes(connection: sa.Connection) -> Iterator[None]:
    """Texts of SQLite as they are: one that is damaged is to be found by its hash, and must not end the check."""
    raw = connection.connection.driver_connection
    assert raw is not None
    if connection.dialect.name != "sqlite":
        yield
        return
    raw.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        raw.text_factory = str


def _is_unicode(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(text.encode())
    except UnicodeEncodeError:
        return False


def check_chain(report: Report, tenant: str, chain: Iterable[Record], anchors: Iterable[Anchor] = ()) -> None:
    """Checks the records of one chain, in order, and adds what is found to a report.

    Args:
        anchors: of this tenant.
    """
    wanted: dict[int, set[str]] = {}
    for anchor in anchors:
        wanted.setdefault(anchor.head.seq, set()).add(anchor.head.hash)
    if report.anchors and not wanted:
        report.note(f"{tenant}: no head of this chain is anchored")
    missing, explained = Spans(), Spans()
    seq, time_ns, last = 0, -(2**63), Head()
    for record in chain:
        report.records += 1
        if not typed(record):
            seq += 1
            report.add("link", tenant, seq, "the record was changed: a column is not of its type")
            last = Head(seq, record.hash)
            continue
        if record.seq < 1:
            report.add("position", tenant, record.seq, f"record at position {record.seq}, before the first")
        elif record.seq != seq + 1:
            report.add("gap", tenant, seq + 1, f"records {seq + 1} to {record.seq - 1} are missing")
        seq = record.seq
        if hash_of(record) != record.hash or record.prev != last.hash:
            report.add("link", tenant, seq, "the record, or its link to the one before, was changed")
        if record.body is None:
            report.pruned += 1
            missing.add(seq)
        elif digest(record.body) != record.body_digest:
            report.add("body", tenant, seq, "the body is not the one that was recorded")
        elif record.kind == TOMBSTONE:
            _read_tombstone(report, record, explained)
        if wanted and seq in wanted and wanted.pop(seq) != {record.hash}:
            report.add("anchor", tenant, seq, "the record is not the one that was anchored")
        if record.time_ns < time_ns:
            back = (time_ns - record.time_ns) / 1e9
            report.note(f"{tenant}: the clock went back {back:.3f} s before record {seq}; order is that of positions")
        time_ns, last = record.time_ns, Head(seq, record.hash)
    for first, end in missing.minus(explained):
        report.add(
            "pruned", tenant, first, f"bodies of records {first} to {end} are missing, and no tombstone says why"
        )
    for anchored in sorted(wanted):
        where = f"the chain ends at {seq}" if anchored > seq else "there is no such record"
        report.add("tail", tenant, anchored, f"record {anchored} was anchored, and {where}")
    report.heads[tenant] = last


def _read_tombstone(report: Report, record: Record, explained: Spans) -> None:
    try:
        spans = spans_of(record)
    except ValueError:
        report.add("tombstone", record.tenant, record.seq, "the tombstone cannot be read")
        return
    for first, end in spans:
        explained.add_span(first, min(end, record.seq - 1))


def _check_head(report: Report, tenant: str, head: Head | None) -> None:
    last = report.heads[tenant]
    if head is None and last.seq:
        report.add("head", tenant, last.seq, "the table of heads does not know this chain")
    elif head is not None and head != last:
        said = f"the table of heads ends at {head.seq}, the records at {last.seq}"
        report.add("head", tenant, last.seq, said if head.seq != last.seq else "the table of heads has another hash")


def _damage(ledger: Ledger) -> list[str]:
    """What SQLite finds in its own pages and indices; a damaged index could hide a record from a search."""
    if ledger.engine.dialect.name != "sqlite":
        return []
    try:
        with reading(ledger.engine) as connection:
            said = connection.execute(sa.text("PRAGMA integrity_check(100)")).scalars().all()
    except LedgerError as error:
        return [str(error)]
    return [line for line in said if line != "ok"]


def summary(report: Report) -> Mapping[str, object]:
    """A report as JSON."""
    return {
        "records": report.records,
        "pruned": report.pruned,
        "anchors": report.anchors,
        "heads": {tenant: vars(head) for tenant, head in report.heads.items()},
        "count": report.count,
        "problems": [vars(problem) for problem in report.problems],
        "notes": report.notes,
    }
