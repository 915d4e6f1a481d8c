"""The ledger itself: appending, and reading back."""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import sqlalchemy as sa

from samebits.errors import InputError, LedgerError
from samebits.ledger.anchors import Anchors
from samebits.ledger.body import Sealed, seal
from samebits.ledger.canonical import EXACT
from samebits.ledger.chain import Head, link, typed
from samebits.ledger.database import connect, insert_into, is_part, reading, writing
from samebits.ledger.entry import Entry, Record
from samebits.ledger.privacy import Privacy
from samebits.ledger.tables import heads, records

PAGE: Final = 2000  # records read at once: megabytes, whatever the ledger holds
PATIENCE_S: Final = 30.0  # for a database server that restarts
_COLUMNS: Final = "seq, id, kind, time_ns, hash, body_digest, body"
# Made once: to put a statement together takes longer than to carry it out.
_WHOSE: Final = heads.c.tenant == sa.bindparam("whose")
_LOCK_HEAD: Final = sa.select(heads.c.seq, heads.c.hash).where(_WHOSE).with_for_update()
_MOVE_HEAD: Final = heads.update().where(_WHOSE).values(seq=sa.bindparam("seq"), hash=sa.bindparam("hash"))
_INSERT: Final = records.insert()
_NAMES: Final = tuple(column.name for column in records.columns)


class Ledger:
    """An open ledger. Any number of threads and processes may append to one database at the same time.

    Attributes:
        privacy: what of requests and answers is stored.
        clock: wall clock, nanoseconds since 1970.
    """

    def __init__(
        self,
        engine: sa.Engine,
        privacy: Privacy,
        anchors: Anchors | None,
        clock: Callable[[], int],
    ) -> None:
        """See ``open``."""
        self.engine, self.privacy, self.clock = engine, privacy, clock
        self._anchors = anchors
        self._lock = threading.Lock()  # threads of one process need not race for the database's lock

    @classmethod
    def open(
        cls,
        url: str,
        *,
        privacy: Privacy | None = None,
        anchors: str | Path | None = None,
        readonly: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> Ledger:
        """Opens a ledger, and brings its tables to today's form.

        Args:
            url: ``sqlite:///FILE`` or ``postgresql://…``.
            privacy: default ``full``.
            anchors: a file to which the heads of the chains are noted from time to time; best on another disk.
            readonly: to read alone; it is not made where there is none, and its form stays.
            clock: wall clock, nanoseconds since 1970.

        Raises:
            InputError: the URL or the anchors' file is wrong.
            LedgerError: the database cannot be reached or opened.
        """
        engine = connect(url, readonly=readonly)
        try:
            if anchors is not None and is_part(
                engine, Path(anchors)
            ):  # SQLite would write over the lines, or read them
                raise InputError("is the ledger itself", field="ledger.anchors", remedy="Name another file.")
            noted = None if anchors is None else Anchors(Path(anchors), clock)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, privacy or Privacy(), noted, clock)

    def seal(self, entry: Entry, salt: bytes | None = None) -> Sealed:
        """An entry made ready to be stored; ``append_sealed`` stores it.

        Args:
            salt: see ``samebits.ledger.body.seal``.

        Raises:
            InputError: it holds a value that JSON cannot express.
        """
        return seal(entry, self.privacy, salt)

    def append(self, entries: Sequence[Entry]) -> list[Record]:
        """Stores entries, all or none; when it returns, the disk has them.

        Raises:
            InputError: one of them holds a value that JSON cannot express; none was stored.
            LedgerError: the database cannot be written; none was stored.
        """
        return self.append_sealed([self.seal(entry) for entry in entries])

    def append_sealed(self, sealed: Sequence[Sealed]) -> list[Record]:
        """Stores what ``seal`` has made; see ``append``."""
        if not sealed:
            return []
        with self._lock:
            stored = self._insist(sealed)
            if self._anchors is not None:
                self._anchors.note(stored)
        return stored

    def _insist(self, sealed: Sequence[Sealed]) -> list[Record]:
        """Appends, again after a lost connection; a transaction whose end was not seen is looked up first."""
        deadline, pause, attempt = time.monotonic() + PATIENCE_S, 0.05, list[Record]()
        while True:
            try:
                if attempt and self._holds(attempt[0]):
                    return attempt
                attempt.clear()
                with writing(self.engine) as connection:
                    extend(connection, sealed, self.clock, attempt)
                return attempt
            except LedgerError as error:
                if not error.lost or time.monotonic() > deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, 1.0)

    def _holds(self, record: Record) -> bool:
        """Whether the record that was to get a place has it; its salt makes its hash unique."""
        with reading(self.engine) as connection:
            found = connection.execute(
                sa.select(records.c.hash).where(records.c.tenant == record.tenant, records.c.seq == record.seq)
            ).scalar()
        return found == record.hash

    # ---- reading -----------------------------------------------------------------------------------------------------

    def heads(self) -> dict[str, Head]:
        """Tenant → the last record of its chain."""
        with reading(self.engine) as connection:
            return read_heads(connection)

    def records(self, tenant: str | None = None, *, after: int = 0) -> Iterator[Record]:
        """All records of one chain, or of all, in the order of tenants and positions, from one state of the ledger.

        Args:
            tenant: None for all.
            after: leave out the first positions of each chain.

        Raises:
            LedgerError: the database cannot be read.
        """
        with reading(self.engine) as connection:
            for name in [tenant] if tenant is not None else tenants_of(connection):
                yield from _typed(read_chain(connection, name, after))

    def find(self, id: str) -> list[Record]:
        """The records of a public id, oldest first."""
        with reading(self.engine) as connection:
            found = connection.execute(
                sa.select(records.c.tenant, records.c.seq).where(records.c.id == id).order_by(records.c.time_ns)
            ).all()
            if any(type(seq) is not int for _, seq in found):
                raise LedgerError(f"the position of {id} is damaged; see samebits ledger fsck")
            return [record for tenant, seq in found if (record := read_one(connection, tenant, seq)) is not None]

    def at(self, tenant: str, seq: int) -> Record | None:
        """The record at a position, if there is one."""
        with reading(self.engine) as connection:
            return read_one(connection, tenant, seq)

    def is_in(self, path: Path) -> bool:
        """Whether a file is the database of this ledger, or a part of it."""
        return is_part(self.engine, path)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Notes the last heads, and closes the connections. Closing again does nothing.

        Where the heads cannot be noted, that is a warning: the records themselves are stored.
        """
        try:
            if self._anchors is not None:
                self._anchors.close()
        except LedgerError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        finally:
            self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def extend(connection: sa.Connection, sealed: Sequence[Sealed], clock: Callable[[], int], stored: list[Record]) -> None:
    """Adds records to their chains within a transaction that writes.

    Args:
        stored: gets the records, in the order of ``sealed``.
    """
    # In one order everywhere, so that two servers do not wait for each other's chains.
    grown = {tenant: lock_head(connection, tenant) for tenant in sorted({item.tenant for item in sealed})}
    for item in sealed:
        record = link(
            grown[item.tenant], tenant=item.tenant, id=item.id, kind=item.kind, time_ns=clock(), body=item.body
        )
        grown[item.tenant] = Head(record.seq, record.hash)
        stored.append(record)
    insert(connection, stored)
    for tenant, head in grown.items():
        move_head(connection, tenant, head)


def insert(connection: sa.Connection, new: Sequence[Record]) -> None:
    """Writes rows; heads are left as they are."""
    connection.execute(_INSERT, [{name: getattr(record, name) for name in _NAMES} for record in new])


def lock_head(connection: sa.Connection, tenant: str) -> Head:
    """The head of a chain, which nobody else can change until the transaction ends.

    Raises:
        LedgerError: it is damaged.
    """
    found = connection.execute(_LOCK_HEAD, {"whose": tenant}).one_or_none()
    if found is None:
        start = {"tenant": tenant, "seq": 0, "hash": Head().hash}
        connection.execute(insert_into(connection, heads).values(start).on_conflict_do_nothing())
        found = connection.execute(_LOCK_HEAD, {"whose": tenant}).one()
    if type(found.seq) is not int or not 0 <= found.seq < EXACT or type(found.hash) is not str:
        raise LedgerError(f"the head of the chain of {tenant!r} is damaged; see samebits ledger fsck")
    return Head(found.seq, found.hash)


def move_head(connection: sa.Connection, tenant: str, head: Head) -> None:
    """Writes the head of a chain that is locked."""
    connection.execute(_MOVE_HEAD, {"whose": tenant, "seq": head.seq, "hash": head.hash})


def read_heads(connection: sa.Connection) -> dict[str, Head]:
    """Tenant → head, as the table says."""
    return {row.tenant: Head(row.seq, row.hash) for row in connection.execute(sa.select(heads))}


def tenants_of(connection: sa.Connection) -> list[str]:
    """All tenants that have a record or a head, sorted by code point."""
    found = connection.execute(sa.select(heads.c.tenant).union(sa.select(records.c.tenant))).scalars()
    return sorted(found, key=lambda name: (type(name).__name__, name))  # what is damaged may be no text


def read_one(connection: sa.Connection, tenant: str, seq: int) -> Record | None:
    """The record at a position.

    Raises:
        LedgerError: it is damaged.
    """
    for record in _typed(read_chain(connection, tenant, seq - 1, page=1)):
        return record if record.seq == seq else None
    return None


def _typed(chain: Iterator[Record]) -> Iterator[Record]:
    for record in chain:
        if not typed(record):
            raise LedgerError(f"the ledger is damaged at or behind {record.id!r:.80}; see samebits ledger fsck")
        yield record


def read_chain(connection: sa.Connection, tenant: str, after: int = 0, page: int = PAGE) -> Iterator[Record]:
    """The records of a chain behind a position, a page at a time; each with the stored hash of the one before it."""
    query = sa.text(f"SELECT {_COLUMNS} FROM records WHERE tenant = :tenant AND seq > :after ORDER BY seq LIMIT {page}")
    prev = Head().hash
    if after > 0:
        before = sa.select(records.c.hash).where(records.c.tenant == tenant, records.c.seq == after)
        prev = connection.execute(before).scalar() or prev
    while rows := connection.execute(query, {"tenant": tenant, "after": after}).all():
        for seq, id, kind, time_ns, hash, body_digest, body in rows:
            yield Record(tenant, seq, id, kind, time_ns, prev, hash, body, body_digest)
            prev, after = hash, seq
        if len(rows) < page:
            return
