"""Ids that clients choose themselves: checked before anything is computed, since two answers cannot have one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from samebits.errors import InputError
from samebits.gateway.call import Call
from samebits.gateway.record import Recorder
from samebits.ledger.entry import check_id
from samebits.ledger.routes import GENERATE


class OwnIds:
    """The ids of a client's own (``rid`` of /generate) that are under way. Without a ledger any will do."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: set[tuple[str, str]] = set()

    @asynccontextmanager
    async def taken(self, call: Call) -> AsyncIterator[None]:
        """Takes the id of a call, if it has one, until its answer is recorded.

        Raises:
            InputError: it cannot be an id, or an answer to this tenant has it or will have it.
            LedgerError: the ledger cannot be read.
        """
        rid = call.body.get("rid") if call.path == GENERATE and self._recorder.is_on else None
        if not isinstance(rid, str):
            yield
            return
        check_id("rid", rid)
        key = (call.tenant, rid)
        if key in self._open:
            raise _used(rid)
        self._open.add(key)
        try:
            if await self._recorder.holds(call.tenant, rid):
                raise _used(rid)
            yield
        finally:
            self._open.discard(key)


def _used(rid: str) -> InputError:
    return InputError(f"{rid!r} is the id of another answer", field="rid", remedy="Give a new one, or none.")
