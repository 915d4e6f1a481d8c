"""Whether a ledger can be written: what became of the last write, or of one that was made to find out."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass
from typing import Final

from samebits.errors import LedgerError
from samebits.ledger.database import insert_into, writing
from samebits.ledger.store import Ledger
from samebits.ledger.tables import probe

log = logging.getLogger(__name__)
FRESH_S: Final = 2.0  # what became of a write holds for so long
PATIENCE_S: Final = 2.0  # a database that takes longer cannot be written, for those who ask
LEAST: Final = 16 << 10  # bytes that a probe writes: more than most records have
MOST: Final = 1 << 20


@dataclass(frozen=True)
class _Beat:
    """What became of a write, and when it ended by the monotonic clock."""

    fault: str | None
    time: float


class Pulse:
    """What is known of a ledger. Its writer tells of its writes, from any thread; one event loop asks."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._beat = _Beat(None, time.monotonic())
        self._size = LEAST
        self._asked: asyncio.Task[None] | None = None

    @property
    def last(self) -> str | None:
        """Why the last write failed; None where it did not."""
        return self._beat.fault

    def wrote(self) -> None:
        """Entries were stored."""
        self._size = LEAST
        self._set(None)

    def failed(self, error: Exception, size: int) -> None:
        """So many bytes of entries could not be stored. A probe is as large from then on: where a disk has room for a
        little, it is not said to have room again.
        """
        self._size = max(self._size, min(size, MOST))
        self._set(self._said(error))

    async def fault(self) -> str | None:
        """Why nothing can be stored now; None while it can."""
        if time.monotonic() - self._beat.time < FRESH_S:
            return self._beat.fault
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(asyncio.to_thread(self._probe))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.shield(self._asked)
        except TimeoutError:
            return self._beat.fault or f"the ledger did not take a write within {PATIENCE_S:g} s"
        return self._beat.fault

    async def close(self) -> None:
        """Waits for a probe under way."""
        if self._asked is not None:
            await self._asked

    def _probe(self) -> None:
        try:
            with writing(self._ledger.engine) as connection:
                # Other bytes each time: SQLite does not write what is there already.
                filler = {"filler": secrets.token_bytes(self._size)}
                new = insert_into(connection, probe).values(number=0, **filler)
                connection.execute(new.on_conflict_do_update(index_elements=["number"], set_=filler))
        except LedgerError as error:
            self._set(self._said(error))
        else:
            self._set(None)

    def _said(self, error: Exception) -> str:
        """The reason, for those who need no key to ask; of a server's address and users nothing."""
        if self._ledger.engine.dialect.name == "sqlite" or not isinstance(error, LedgerError):
            return str(error)
        return ": ".join(str(error).split(": ")[:2])

    def _set(self, fault: str | None) -> None:
        before, self._beat = self._beat, _Beat(fault, time.monotonic())
        if fault is not None and before.fault is None:
            log.warning("%s; the server is not ready until it can be", fault)
        elif fault is None and before.fault is not None:
            log.warning("the ledger can be written again")
