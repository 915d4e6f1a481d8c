"""Anchors: heads of the chains, noted outside the database, so that a chain cannot be shortened or rewritten unseen.

A file of lines of canonical JSON, which only grows. A line that a crash cut short is passed over and reported.
"""

from __future__ import annotations

import base64
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from samebits.errors import InputError, LedgerError
from samebits.ledger.canonical import canonical
from samebits.ledger.chain import Head
from samebits.ledger.entry import Record

ANCHOR_FORMAT: Final = "samebits-anchor-1"
STAMP_FORMAT: Final = "samebits-timestamp-1"
EVERY_S: Final = 10.0  # what may be lost unseen between two anchors, in seconds of traffic


@dataclass(frozen=True)
class Anchor:
    """One noted head."""

    tenant: str
    head: Head
    time_ns: int


class Anchors:
    """Notes heads to a file: the first at once, then every `EVERY_S` seconds while there is traffic, and at the end.

    Args:
        path: created when it does not exist.
        clock: wall clock, nanoseconds since 1970.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self.path, self._clock = path, clock
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}", field="ledger.anchors", remedy="Name another file."
            ) from error
        self._pending: dict[str, Head] = {}
        self._next = 0.0

    def note(self, stored: Iterable[Record]) -> None:
        """Remembers the heads that records made, and writes them when it is time.

        Where they cannot be written, that is a warning: the records themselves are stored. It is tried again later.
        """
        self.note_heads({record.tenant: Head(record.seq, record.hash) for record in stored})
        if time.monotonic() >= self._next:
            try:
                self.write()
            except LedgerError as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)

    def note_heads(self, heads: Mapping[str, Head]) -> None:
        """Remembers heads until the next ``write``."""
        self._pending.update(heads)

    def write(self, stamp: Callable[[bytes], bytes] | None = None) -> None:
        """Writes what is pending, on to the disk.

        Args:
            stamp: gives a timestamp of the lines, which is written behind them (``samebits.ledger.timestamp``).

        Raises:
            LedgerError: the file cannot be written.
        """
        self._next = time.monotonic() + EVERY_S
        if not self._pending:
            return
        each = [line_of(Anchor(t, head, self._clock())) for t, head in sorted(self._pending.items())]
        lines = b"".join(each)
        if stamp is not None:
            token = base64.b64encode(stamp(lines)).decode()
            lines += canonical({"anchor": STAMP_FORMAT, "lines": len(each), "token": token}) + b"\n"
        try:
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                lines = b"\n" + lines  # a line that was cut short stays alone on its own
            while lines:
                lines = lines[os.write(self._file, lines) :]
            os.fsync(self._file)
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be written: {error.strerror}") from error
        self._pending.clear()

    def close(self) -> None:
        """Writes the last heads; see ``write``."""
        if self._file >= 0:
            try:
                self.write()
            finally:
                os.close(self._file)
                self._file = -1


def line_of(anchor: Anchor) -> bytes:
    """An anchor as a line."""
    fields: Mapping[str, Any] = {
        "anchor": ANCHOR_FORMAT,
        "tenant": anchor.tenant,
        "seq": anchor.head.seq,
        "hash": anchor.head.hash,
        "time": str(anchor.time_ns),
    }
    return canonical(fields) + b"\n"


@dataclass(frozen=True)
class Stamp:
    """A timestamp of the lines before it.

    Attributes:
        line: its number.
        data: the lines that it is of.
        response: of the authority, DER.
    """

    line: int
    data: bytes
    response: bytes


@dataclass(frozen=True)
class Noted:
    """What a file of anchors says.

    Attributes:
        anchors, stamps: in the order of the file.
        damaged: line number → byte position, of lines that say nothing.
    """

    anchors: tuple[Anchor, ...]
    stamps: tuple[Stamp, ...]
    damaged: Mapping[int, int]


def read_anchors(path: Path) -> Noted:
    """Reads a file of anchors.

    Raises:
        InputError: it cannot be read.
    """
    found, stamps, damaged, position = list[Anchor](), list[Stamp](), dict[int, int](), 0
    recent: list[bytes] = []  # since the last timestamp
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                anchor, stamp = _anchor(line), _stamp(line, number, recent)
                recent.append(line)
                if anchor is not None:
                    found.append(anchor)
                elif stamp is not None:
                    stamps.append(stamp)
                    recent.clear()
                elif line.strip():
                    damaged[number] = position
                position += len(line)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", field="anchors", remedy="Name a file of anchors."
        ) from error
    return Noted(tuple(found), tuple(stamps), damaged)


def _anchor(line: bytes) -> Anchor | None:
    try:
        said = json.loads(line)
        if said["anchor"] != ANCHOR_FORMAT or not isinstance(said["seq"], int):
            return None
        return Anchor(str(said["tenant"]), Head(said["seq"], str(said["hash"])), int(said["time"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _stamp(line: bytes, number: int, recent: list[bytes]) -> Stamp | None:
    try:
        said = json.loads(line)
        if said["anchor"] != STAMP_FORMAT or not 0 < said["lines"] <= len(recent):
            return None
        return Stamp(number, b"".join(recent[-said["lines"] :]), base64.b64decode(said["token"], validate=True))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
