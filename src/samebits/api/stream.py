"""Server-sent events: the chunks of an answer as they come, and what happens when something goes wrong on the way."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from samebits.api.errors import failure
from samebits.api.job import Job, Transcript, deadline_error, disconnected
from samebits.engine import Completion
from samebits.engine.driver import Arrival

log = logging.getLogger(__name__)

DONE: Final = b"data: [DONE]\n\n"
HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
SEND_GRACE_S: Final = 1.0


class Chunks(Protocol):
    """What the events of a route look like."""

    def opening(self) -> list[dict[str, Any]]:
        """Chunks before the first token."""
        ...

    def of(self, arrival: Arrival, completions: list[Completion] | None) -> list[dict[str, Any]]:
        """Chunks of one event; ``completions`` are all choices, given with the event that ends the last of them."""
        ...

    def closing(self, completions: list[Completion]) -> list[dict[str, Any]]:
        """Chunks after the last choice has ended."""
        ...


def sse(chunk: dict[str, Any]) -> bytes:
    """One event."""
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


class EventStream(Response):
    """A job's answer as a stream of events. The job is submitted before the response begins, so that what is wrong
    with it is answered with a status.
    """

    def __init__(self, job: Job, chunks: Chunks) -> None:
        self._job, self._chunks = job, chunks
        self._submission = job.submit()
        self.status_code = 200
        self.background = None
        self.raw_headers = list(HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events until the end, the deadline, or the client's departure."""
        pump = asyncio.create_task(self._pump(send))
        gone = asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait((pump, gone), timeout=self._job.timeout, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
            elif not gone.done():
                pump.cancel()
                async with asyncio.timeout(SEND_GRACE_S):  # it may be the client that does not read
                    await self._end(send, sse(dict(failure(deadline_error(self._job)).body)))
        finally:
            self._submission.cancel()
            pump.cancel()
            gone.cancel()

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            transcript = Transcript(self._job)
            pieces = [sse(chunk) for chunk in self._chunks.opening()]
            while not transcript.complete:
                for arrival in await self._submission.arrivals():
                    transcript.add(arrival)
                    done = transcript.completions if transcript.complete else None
                    pieces += [sse(chunk) for chunk in self._chunks.of(arrival, done)]
                if pieces and not transcript.complete:
                    await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": True})
                    pieces = []
            pieces += [sse(chunk) for chunk in self._chunks.closing(transcript.completions)]
            pieces.append(DONE)
        except Exception as error:
            answer = failure(error)
            if answer.status >= 500:
                log.error("a stream failed", exc_info=error)
            pieces.append(sse(dict(answer.body)))
        await self._end(send, b"".join(pieces))

    async def _end(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": False})
