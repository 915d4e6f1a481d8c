"""Server-sent events: the chunks of an answer as they come, and what happens when something goes wrong on the way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from samebits.api.errors import failure
from samebits.api.job import Job, Transcript, deadline_error, disconnected
from samebits.engine import Completion
from samebits.engine.driver import Arrival

DONE: Final = b"data: [DONE]\n\n"
HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
SEND_GRACE_S: Final = 1.0
# With more choices open than these, an answer is sent in pieces of up to 50 ms, each token still an event of its own:
# at 32 streams a step takes about 40 ms, and waking, writing and reading for every token cost 6 % of the throughput.
MOST_PROMPT: Final = 8
PAUSE_S: Final = 0.05


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


def sse(chunk: Mapping[str, Any], number: int) -> bytes:
    """One event of the routes whose chunks have no name and no number."""
    del number
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def named_sse(chunk: Mapping[str, Any], number: int) -> bytes:
    """One event of /v1/responses: named by its type, and numbered."""
    name = str(chunk["type"]).encode()
    return b"event: " + name + b"\ndata: " + orjson.dumps({**chunk, "sequence_number": number}) + b"\n\n"


@dataclass(frozen=True)
class Style:
    """How chunks become events.

    Attributes:
        encode: from a chunk and its number.
        of_error: from the body of an error to a chunk.
        done: what follows the last chunk of an answer that is complete.
    """

    encode: Callable[[Mapping[str, Any], int], bytes]
    of_error: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    done: bytes


PLAIN: Final = Style(sse, dict, DONE)
NAMED: Final = Style(
    named_sse,
    lambda body: {"type": "error"} | {name: body["error"][name] for name in ("code", "message", "param")},
    b"",
)


class EventStream(Response):
    """A job's answer as a stream of events. The job is submitted before the response begins, so that what is wrong
    with it is answered with a status.
    """

    def __init__(self, job: Job, chunks: Chunks, style: Style = PLAIN) -> None:
        self._job, self._chunks, self._style = job, chunks, style
        self._numbers = itertools.count()
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
                with contextlib.suppress(TimeoutError):  # it may be the client that does not read
                    async with asyncio.timeout(SEND_GRACE_S):
                        await self._end(send, self._encoded_error(deadline_error(self._job)))
        finally:
            self._submission.cancel()
            pump.cancel()
            gone.cancel()

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pieces = self._encoded(self._chunks.opening())
        try:
            transcript, pause = Transcript(self._job), 0.0
            while not transcript.complete:
                for arrival in await self._submission.arrivals(pause):
                    transcript.add(arrival)
                    done = transcript.completions if transcript.complete else None
                    pieces += self._encoded(self._chunks.of(arrival, done))
                if pieces and not transcript.complete:
                    await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": True})
                    pieces = []
                pause = PAUSE_S if self._job.served.driver.choices > MOST_PROMPT else 0.0
            pieces += self._encoded(self._chunks.closing(transcript.completions))
            pieces.append(self._style.done)
        except Exception as error:
            pieces.append(self._encoded_error(error))
        await self._end(send, b"".join(pieces))

    def _encoded(self, chunks: Sequence[Mapping[str, Any]]) -> list[bytes]:
        return [self._style.encode(chunk, next(self._numbers)) for chunk in chunks]

    def _encoded_error(self, error: Exception) -> bytes:
        return self._style.encode(self._style.of_error(failure(error).body), next(self._numbers))

    async def _end(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": False})
