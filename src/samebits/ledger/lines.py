"""Records as lines of JSON: to carry a ledger elsewhere, and to check it there without a database.

A line is canonical JSON. Its body is copied byte for byte, and its hash is the same as in the ledger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Final

import sqlalchemy as sa

from samebits.errors import InputError
from samebits.ledger.canonical import EXACT, FORMAT, canonical, joined
from samebits.ledger.chain import Head, intact
from samebits.ledger.database import writing
from samebits.ledger.entry import KINDS, Record, check_id, check_tenant
from samebits.ledger.store import Ledger, insert, lock_head, move_head, read_one
from samebits.ledger.tombstone import TOMBSTONE

AT_ONCE: Final = 1000  # records of one transaction of an import
_BODY: Final = b'{"body":'
_KINDS: Final = frozenset({*KINDS, TOMBSTONE})
_DECODER: Final = json.JSONDecoder()
_DIGITS: Final = re.compile(r"-?[0-9]{1,19}")


def to_line(record: Record) -> bytes:
    """A record as a line, with its end."""
    members = {
        "ledger": FORMAT,
        "tenant": record.tenant,
        "seq": record.seq,
        "id": record.id,
        "kind": record.kind,
        "time": str(record.time_ns),
        "prev": record.prev,
        "hash": record.hash,
        "body_digest": record.body_digest,
    }
    encoded = {name: canonical(value) for name, value in members.items()}
    return joined(encoded | {"body": b"null" if record.body is None else record.body}) + b"\n"


def from_line(line: bytes) -> Record:
    """The record of a line, which is not checked yet.

    Raises:
        ValueError: it is not such a line.
    """
    text = line.decode("utf-8")
    try:
        said = json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(said, dict) or said.get("ledger") != FORMAT:
        raise ValueError(f"is no line of {FORMAT}")
    if not text.startswith(_BODY.decode()):
        raise ValueError("was written anew: the body does not come first")
    _, end = _DECODER.raw_decode(text, len(_BODY))
    body = text[len(_BODY) : end].encode()
    try:
        record = Record(
            tenant=_text(said, "tenant"),
            seq=_seq(said["seq"]),
            id=_text(said, "id"),
            kind=_text(said, "kind"),
            time_ns=_time(_text(said, "time")),
            prev=_text(said, "prev"),
            hash=_text(said, "hash"),
            body=None if body == b"null" else body,
            body_digest=_text(said, "body_digest"),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"lacks {error}") from None
    if to_line(record).removesuffix(b"\n") != line.removesuffix(b"\n"):
        raise ValueError("was written anew: it holds more than a record, or in another form")
    return record


def _seq(value: object) -> int:
    if type(value) is not int or not 0 < value <= EXACT:
        raise ValueError("seq is no position")
    return value


def _time(text: str) -> int:
    if not _DIGITS.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError("time is no count of nanoseconds")
    return int(text)


def _text(said: dict[str, Any], name: str) -> str:
    if not isinstance(said[name], str):
        raise ValueError(f"{name} is no text")
    return str(said[name])


class LineDamagedError(InputError):
    """A line of an export says nothing, and is not its torn end."""

    def __init__(self, line: int, position: int, said: str) -> None:
        super().__init__(f"line {line}, at byte {position}, is damaged: {said}", field="file", remedy="Export again.")
        self.line = line


@dataclass(frozen=True)
class Torn:
    """A last line that a crash or a full disk cut short.

    Attributes:
        line: its number.
        position: the byte at which it begins; all before it is whole.
        size: its bytes.
    """

    line: int
    position: int
    size: int


class Lines:
    """The records of a file of lines, one at a time.

    Attributes:
        torn: the last line, where it was cut short; known when all others have been read.

    Raises:
        InputError: while iterating: the file cannot be read (LineDamagedError: a line of it).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: Torn | None = None

    def __iter__(self) -> Iterator[Record]:
        try:
            with self.path.open("rb") as file:
                yield from self._records(file)
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be read: {error.strerror}", field="file", remedy="Name an export."
            ) from error

    def _records(self, file: BinaryIO) -> Iterator[Record]:
        position = 0
        for number, line in enumerate(file, 1):
            try:
                yield from_line(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    self.torn = Torn(number, position, len(line))
                    return
                raise LineDamagedError(number, position, str(error)) from None
            position += len(line)


@dataclass
class Imported:
    """What an import did.

    Attributes:
        added: records.
        present: records that were there already, the same.
        torn: the last line of the file, where it was cut short.
    """

    added: int = 0
    present: int = 0
    torn: Torn | None = None


def import_lines(ledger: Ledger, path: Path) -> Imported:
    """Adds the records of a file to their chains, each at its position, with its hash.

    Raises:
        InputError: a line is damaged, a record is not intact, or does not continue its chain. Of it and the
            up to `AT_ONCE` records of its transaction nothing was added.
        LedgerError: the database cannot be written.
    """
    lines, result = Lines(path), Imported()
    for _, group in groupby(enumerate(lines), lambda item: item[0] // AT_ONCE):
        batch = [record for _, record in group]
        with writing(ledger.engine) as connection:
            for tenant, chain in groupby(batch, lambda record: record.tenant):
                _continue(connection, tenant, list(chain), result)
    result.torn = lines.torn
    return result


def _continue(connection: sa.Connection, tenant: str, chain: list[Record], result: Imported) -> None:
    check_tenant(tenant)
    head, new = lock_head(connection, tenant), list[Record]()
    for record in chain:
        where = f"record {record.seq} of {tenant!r}"
        check_id("id", record.id)
        if record.kind not in _KINDS:
            raise InputError(f"{where} is of no kind that there is", field="file", remedy="Export again.")
        if not intact(record):
            raise InputError(f"{where} is not what its hash says", field="file", remedy="Export again.")
        if record.seq <= head.seq and not new:
            found = read_one(connection, tenant, record.seq)
            if found is None or found.hash != record.hash:
                raise InputError(f"{where} is another one here", field="file", remedy="Import into an empty ledger.")
            result.present += 1
        elif (record.seq, record.prev) != (head.seq + 1, head.hash):
            raise InputError(
                f"{where} does not follow record {head.seq}", field="file", remedy="Import what is before it first."
            )
        else:
            new.append(record)
            head = Head(record.seq, record.hash)
    if new:
        insert(connection, new)
        move_head(connection, tenant, head)
        result.added += len(new)
