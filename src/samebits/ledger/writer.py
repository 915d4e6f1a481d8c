"""The ledger for an event loop: entries that wait are committed together by a thread of their own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from samebits.errors import LedgerError
from samebits.ledger.body import SALT_BYTES, Sealed
from samebits.ledger.entry import Entry, Record
from samebits.ledger.pulse import Pulse
from samebits.ledger.store import Ledger

CAPACITY: Final = 4096  # entries that wait; more have to wait to wait
MOST_TOGETHER: Final = 512  # entries of one transaction


@dataclass(frozen=True, eq=False)
class _Waiting:
    entry: Entry
    future: asyncio.Future[Record]
    loop: asyncio.AbstractEventLoop


class AsyncLedger:
    """A writer thread before a ledger. Belongs to one event loop, and owns the ledger: closing it closes both.

    Args:
        ledger: an open one.
        capacity: entries that may wait.

    Attributes:
        pulse: whether it can be written.
    """

    def __init__(self, ledger: Ledger, capacity: int = CAPACITY) -> None:
        self.ledger = ledger
        self.pulse = Pulse(ledger)
        self._room = asyncio.Semaphore(capacity)
        self._coming: list[_Waiting] = []
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="samebits-ledger", daemon=True)
        self._thread.start()

    async def add(self, entry: Entry) -> Record:
        """Stores one entry; returns when the disk has it. A caller that is cancelled meanwhile does not undo it.

        Raises:
            InputError: it holds a value that JSON cannot express.
            LedgerError: the database cannot be written, or the ledger is closed; the entry is not stored.
        """
        await self._room.acquire()  # until it is stored, whether or not somebody waits for that
        loop = asyncio.get_running_loop()
        waiting = _Waiting(entry, loop.create_future(), loop)
        if self._ending:
            self._room.release()
            raise LedgerError("the ledger is closed")
        if not self._coming:
            loop.call_soon(self._hand_over)
        self._coming.append(waiting)
        return await waiting.future

    def _hand_over(self) -> None:
        """Gives the thread what came in one turn of the loop, so that it does not begin with the first of many."""
        coming, self._coming = self._coming, []
        with self._changed:
            self._queue.extend(coming)
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """Entries that no transaction has taken yet."""
        return len(self._coming) + len(self._queue)

    async def close(self) -> None:
        """Stores what waits, and closes the ledger. Closing again does nothing."""
        self._ending = True
        self._hand_over()
        await asyncio.to_thread(self._thread.join)
        await self.pulse.close()
        await asyncio.to_thread(self.ledger.close)

    def _run(self) -> None:
        while batch := self._next_batch():
            ready: list[tuple[_Waiting, Sealed]] = []
            outcomes: list[tuple[_Waiting, Record | Exception]] = []
            # Drawn at once: each time the system is asked, this thread has to wait for its turn again.
            salts = secrets.token_bytes(SALT_BYTES * len(batch))
            for i, waiting in enumerate(batch):
                try:
                    ready.append((waiting, self.ledger.seal(waiting.entry, salts[SALT_BYTES * i :][:SALT_BYTES])))
                except Exception as error:  # it alone is wrong; whatever it is, this thread goes on
                    outcomes.append((waiting, error))
            if ready:
                outcomes += self._stored(ready)
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it who waited
                batch[0].loop.call_soon_threadsafe(self._tell, outcomes)

    def _stored(self, ready: list[tuple[_Waiting, Sealed]]) -> list[tuple[_Waiting, Record | Exception]]:
        try:
            stored = self.ledger.append_sealed([sealed for _, sealed in ready])
        except Exception as error:  # whatever it is, nobody may wait for ever
            self.pulse.failed(error, sum(len(sealed.body) for _, sealed in ready))
            return [(waiting, error) for waiting, _ in ready]
        self.pulse.wrote()
        return [(waiting, record) for (waiting, _), record in zip(ready, stored, strict=True)]

    def _tell(self, outcomes: list[tuple[_Waiting, Record | Exception]]) -> None:
        """Ends the waiting of a batch at once: to wake the loop for each entry costs as much as to store it."""
        for waiting, outcome in outcomes:
            self._room.release()
            if waiting.future.done():
                continue
            if isinstance(outcome, Exception):
                waiting.future.set_exception(outcome)
            else:
                waiting.future.set_result(outcome)

    def _next_batch(self) -> list[_Waiting]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._ending)
            return [self._queue.popleft() for _ in range(min(len(self._queue), MOST_TOGETHER))]
