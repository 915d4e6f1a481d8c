"""An answer that is passed on as it comes, and recorded before its end is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, Protocol

from samebits.errors import SamebitsError
from samebits.gateway.block import Outcome
from samebits.gateway.errors import UpstreamTimeoutError
from samebits.gateway.events import DONE, TERMINAL, named_event, plain_event
from samebits.gateway.flight import Chunk, Flight
from samebits.gateway.ids import shown_id
from samebits.gateway.join import without_usage
from samebits.gateway.plan import Plan
from samebits.ledger.routes import RESPONSES


class Ends(Protocol):
    """What happens at the end of a stream, whichever end it is."""

    def finished(
        self, plan: Plan, answer_id: str, outcome: Outcome, cache: str, first_token: float | None
    ) -> Awaitable[dict[str, Any]]:
        """Records an answer that is complete, and gives it as it is sent."""
        ...

    def failed(self, answer_id: str, plan: Plan, error: SamebitsError) -> Awaitable[None]:
        """Records that it failed on the way."""
        ...

    def cancelled(self, answer_id: str, plan: Plan) -> None:
        """Sees to it that it is recorded that the client went away."""
        ...


class Stream:
    """A stream as it comes. Its end is held back until the answer is in the ledger."""

    def __init__(
        self,
        ends: Ends,
        plan: Plan,
        answer_id: str,
        flight: Flight[Outcome],
        cache: str,
        deadline: float | None,
    ) -> None:
        self._ends, self._plan, self._id, self._shown = ends, plan, answer_id, answer_id
        self._flight, self._cache, self._deadline = flight, cache, deadline
        self._recorded = self._closed = False

    def close(self) -> None:
        """Leaves the computation; what was not answered to the end is recorded as cancelled."""
        if self._closed:
            return
        self._closed = True
        if not self._recorded:
            self._ends.cancelled(self._shown, self._plan)
        self._flight.leave()

    async def pieces(self, first: Chunk, chunks: AsyncIterator[Chunk]) -> AsyncIterator[bytes]:
        """The events.

        Raises:
            SamebitsError: it fails on the way. That is in the ledger then.
        """
        plan, started = self._plan, time.perf_counter() - self._plan.call.arrived
        try:
            held = [first] if _ends(first) else []
            if not held and (piece := _encode(plan, self._as_sent(first))):
                yield piece
            async for chunk in self._until(chunks):
                if held or _ends(chunk):
                    held.append(chunk)
                elif piece := _encode(plan, self._as_sent(chunk)):
                    yield piece
            outcome = await self._flight.result()
            answer = await self._ends.finished(plan, self._id, outcome, self._cache, started)
        except SamebitsError as error:
            await self._ends.failed(self._shown, plan, error)
            self._recorded = True
            raise
        self._recorded = True
        named = plan.call.path == RESPONSES
        sent = [self._as_sent(chunk) for chunk in held]
        if not named and "system_fingerprint" in answer:
            sent = [{"system_fingerprint": answer["system_fingerprint"], **chunk} for chunk in sent]
        _put_block(sent, answer["samebits"], named)
        yield b"".join([_encode(plan, chunk) for chunk in sent] + ([] if named else [DONE]))

    async def _until(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise late(self._plan) from None
            if chunk is None:
                return
            yield chunk

    def _as_sent(self, chunk: Chunk) -> Chunk:
        route = self._plan.route
        if self._plan.call.path == RESPONSES:
            response = chunk.get("response")
            if not isinstance(response, dict):
                return dict(chunk)
            self._shown = shown_id(RESPONSES, route, response.get("id"), self._id)
            return {**chunk, "response": {**_without_block(response), "id": self._shown}}
        sent = {**_without_block(chunk), "id": self._id}
        if sent.get("system_fingerprint", "") is None:
            del sent["system_fingerprint"]
        # Not the one of an earlier answer: some servers state theirs at the end only, and it may have moved.
        if route.own_fingerprint is not None and "system_fingerprint" not in sent:
            sent["system_fingerprint"] = route.own_fingerprint
        return sent


def late(plan: Plan) -> UpstreamTimeoutError:
    """What a request that takes too long ends with."""
    return UpstreamTimeoutError(f"no answer within {plan.route.timeout:g} s; ask for fewer tokens")


def _encode(plan: Plan, chunk: Chunk) -> bytes:
    if plan.call.path == RESPONSES:
        return named_event(chunk)
    kept = chunk if plan.wants_usage else without_usage(chunk)
    return b"" if kept is None else plain_event(kept)


def _ends(chunk: Chunk) -> bool:
    """Whether a chunk is the end of a choice, or of a response."""
    if chunk.get("type") in TERMINAL:
        return True
    return any(isinstance(c, dict) and c.get("finish_reason") is not None for c in chunk.get("choices") or ())


def _without_block(sent: Mapping[str, Any]) -> dict[str, Any]:
    """What an upstream sent without a block ``samebits``: ours stands at the end, and is no other's word."""
    return {name: value for name, value in sent.items() if name != "samebits"}


def _put_block(chunks: list[Chunk], block: Mapping[str, Any], named: bool) -> None:
    if named:
        for chunk in chunks:
            if chunk.get("type") in TERMINAL:
                chunk["response"] = {**chunk["response"], "samebits": block}
        return
    last = max((i for i, chunk in enumerate(chunks) if chunk.get("choices")), default=None)
    if last is not None:
        chunks[last]["samebits"] = block
