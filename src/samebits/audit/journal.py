"""The journal of an audit: a JSONL file that only grows, from which an interrupted audit goes on.

Lines: a head with the digest of the plan; for each target what was found when it was opened; ``sent`` before a request
of the plan leaves; the observation when its answer is there. A line is written in one call as soon as it exists, so
that it outlives the process, and is on the disk (fsync) within `SYNC_S`, so that it outlives the machine.

A request that was sent and has no observation may have been paid. It is not sent again unless that is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from samebits.audit.observation import Condition, Observation, from_line, to_line
from samebits.errors import InputError, MeasurementError

FORMAT: Final = "samebits-audit-1"
BEGIN: Final = f'{{"journal":"{FORMAT}"'.encode()  # how each begins
SYNC_LINES: Final = 256
SYNC_S: Final = 1.0
REMEDY: Final = "Name another file for a new audit, or repeat the command that began this one."
# Target, prompt, run, condition: what tells an observation from all others of its audit.
Key = tuple[str, str, int, Condition]


@dataclass
class Past:
    """What an earlier process left in a journal.

    Attributes:
        head: the first line; None for a new file.
        known: target → what was found when it was opened.
        sent: target → indices of steps whose requests left.
        done: keys of the observations.
        torn: bytes of a last line that a crash cut short; they were removed.
    """

    head: Mapping[str, Any] | None = None
    known: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    sent: dict[str, set[int]] = field(default_factory=dict)
    done: set[Key] = field(default_factory=set)
    torn: int = 0

    @property
    def begun(self) -> bool:
        """Whether a request of the plan left, so that it may have been paid."""
        return bool(self.sent or self.done)


class Journal:
    """An open journal. One process has it at a time. One of a plan of which no request left may be taken for another.

    Args:
        path: created when it does not exist.
        digest: of plan and targets; a file with another one is refused.
        head: written into a new file beside the digest.

    Attributes:
        past: what was there.
        begun: whether a request of the plan left, now or then.

    Raises:
        InputError: the file belongs to another plan or process, cannot be written, or a line is damaged.
        MeasurementError: it cannot be written later on.
    """

    def __init__(self, path: Path, digest: str, head: Mapping[str, Any]) -> None:
        self.path = path
        self._failed = False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(f"cannot be written: {error}", field="journal", remedy="Name another file.") from error
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):  # /dev/full can be read without end
                raise InputError("is no file", field="journal", remedy="Name a file.")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.past = _read_past(self._file)
            same = self.past.head is not None and self.past.head.get("digest") == digest
            if self.past.head is not None and not same and not self.past.begun:
                os.ftruncate(self._file, 0)
                self.past = Past()
            if self.past.head is None:
                self._write({"journal": FORMAT, "digest": digest, "created": time.time(), **head})
                os.fsync(self._file)
            elif not same:
                raise InputError("belongs to another plan or other targets", field="journal", remedy=REMEDY)
        except BlockingIOError as error:
            os.close(self._file)
            raise InputError("another process writes it", field="journal", remedy="Wait for it.") from error
        except BaseException:
            os.close(self._file)
            raise
        self.begun = self.past.begun
        self._unsynced = 0
        self._synced = time.monotonic()
        self._sync: asyncio.Future[None] | None = None

    def _write(self, line: Mapping[str, Any] | str) -> None:
        text = line if isinstance(line, str) else json.dumps(line, separators=(",", ":")) + "\n"
        data = text.encode("ascii")
        if self._failed:  # what follows a line that was cut short would make it a damaged one
            raise MeasurementError("the journal cannot be written any more; go on with it later")
        try:
            while data:  # a signal may cut a write short
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._failed = True
            raise MeasurementError(f"the journal cannot be written: {error}; go on with it later") from error

    def opened(self, target: str, known: Mapping[str, Any]) -> None:
        """Notes what was found when a target was opened."""
        self._write({"opened": target, "known": known})

    def sent(self, target: str, step: int) -> None:
        """Notes that the request of a step is about to leave."""
        self.begun = True
        self._write(f'{{"sent":{step},"target":{json.dumps(target)}}}\n')

    def add(self, observation: Observation) -> None:
        """Notes an observation, and sees to it that the disk has it soon."""
        self._write(to_line(observation))
        self._unsynced += 1
        now = time.monotonic()
        if (self._unsynced >= SYNC_LINES or now - self._synced >= SYNC_S) and self._sync is None:
            self._unsynced, self._synced = 0, now
            self._sync = asyncio.ensure_future(asyncio.to_thread(os.fsync, self._file))
            self._sync.add_done_callback(self._on_synced)

    def _on_synced(self, done: asyncio.Future[None]) -> None:
        self._sync = None
        if not done.cancelled():
            done.result()  # an error of the disk is not to be overheard

    async def settle(self) -> None:
        """Returns when the disk has everything."""
        if self._sync is not None:
            await asyncio.wait((self._sync,))
        await asyncio.to_thread(os.fsync, self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)


def read_head(path: Path) -> Mapping[str, Any]:
    """The first line of a journal: digest, moment, plan.

    Raises:
        InputError: the file cannot be read, or is no journal.
    """
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            line = file.readline()
    except OSError as error:
        raise InputError(f"cannot be read: {error}", field="journal", remedy="Name a journal.") from error
    entry = _entry(line, 1, path) if line.startswith(BEGIN.decode()) else None
    if entry is None or isinstance(entry, Observation):
        raise InputError(f"{path} is no journal of samebits audit", field="journal", remedy="Name a journal.")
    return entry


def read_journal(path: Path) -> Iterator[Observation]:
    """The observations of a journal, one at a time.

    Raises:
        InputError: the file cannot be read, or a line is damaged.
    """
    try:
        with path.open(encoding="ascii") as file:
            for number, line in enumerate(file, 1):
                entry = _entry(line, number, path)
                if isinstance(entry, Observation):
                    yield entry
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", field="journal", remedy="Name a journal.") from error


def _entry(line: str, number: int, path: Path | None = None) -> Observation | Mapping[str, Any]:
    """What a line holds; `path` is named in errors where several journals may be read."""
    try:
        if line.startswith(('{"journal"', '{"opened"', '{"sent"')):
            return _checked(json.loads(line), number)
        return from_line(line)
    except (ValueError, RecursionError) as error:
        why = str(error)
        if isinstance(error, InputError):
            why = error.message if error.field == "line" else f"{error.field}: {error.message}"
        where = f"line {number}" if path is None else f"line {number} of {path}"
        raise InputError(f"{where} is damaged: {why}", field="journal", remedy=REMEDY) from error


def _checked(entry: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """A line that is no observation, if its fields are what they should be."""
    kinds: dict[str, type] = {"journal": str, "digest": str}
    if "journal" not in entry:
        kinds = {"opened": str, "known": dict} if "opened" in entry else {"sent": int, "target": str}
    for name, kind in kinds.items():
        if type(entry.get(name)) is not kind:
            raise InputError(f"is not of type {kind.__name__}", field=name, remedy=REMEDY)
    if entry.get("sent", 0) < 0:
        raise InputError(f"{entry['sent']} is below 0", field="sent", remedy=REMEDY)
    if "journal" in entry and (number != 1 or entry["journal"] != FORMAT):
        raise InputError(f"format {entry['journal']!r} is unknown", field="journal", remedy=REMEDY)
    return entry


def _read_past(file: int) -> Past:
    past = Past()
    conditions: dict[Condition, Condition] = {}
    with open(os.dup(file), "rb") as reader:
        reader.seek(0)
        end = 0
        for number, raw in enumerate(reader, 1):
            if not raw.endswith(b"\n"):
                # A crash in the middle of a line. If only the end of the line is missing, what it says is kept.
                try:
                    _entry(raw.decode("ascii", "replace"), number)
                    os.write(file, b"\n")
                except InputError:
                    # Somebody else's file of one line is not cut short.
                    if number == 1 and not raw.startswith(BEGIN[: len(raw)]):
                        raise InputError("is no journal of samebits audit", field="journal", remedy=REMEDY) from None
                    past.torn = len(raw)
                    os.ftruncate(file, end)
                    break
            end += len(raw)
            entry = _entry(raw.decode("ascii", "replace"), number)
            if isinstance(entry, Observation):
                condition = conditions.setdefault(entry.condition, entry.condition)  # kept once, not once a line
                past.done.add((entry.target, entry.prompt_id, entry.run, condition))
            elif "journal" in entry:
                past.head = entry
            elif "opened" in entry:
                past.known[entry["opened"]] = entry["known"]
            else:
                past.sent.setdefault(entry["target"], set()).add(entry["sent"])
            if past.head is None:
                raise InputError("is no journal of samebits audit", field="journal", remedy=REMEDY)
    return past
