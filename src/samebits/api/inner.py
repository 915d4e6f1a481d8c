"""The engines of this process as the gateway sees them: the routes of this application, asked without a network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import orjson
from starlette.types import ASGIApp, Message, Scope

from samebits.gateway.errors import MalformedError, RefusedError

_END: Final = None
Piece = bytes | None


class InnerReply:
    """See ``Reply``. Closing it tells the route that its client has gone."""

    def __init__(self, status: int, headers: Mapping[str, str], run: _Run) -> None:
        self.status, self.headers, self._run = status, headers, run

    async def pieces(self) -> AsyncIterator[bytes]:
        """See ``Reply.pieces``."""
        while (piece := await self._run.body.get()) is not _END:
            yield piece

    def shown(self, text: str) -> str:
        """See ``Reply.shown``: it was sent no key."""
        return text

    def broke_off(self) -> None:
        """See ``Reply.broke_off``: nobody else has to know."""

    async def drain(self) -> None:
        """See ``Reply.drain``: there is no connection."""

    async def close(self) -> None:
        """See ``Reply.close``."""
        await self._run.end()


class InnerBackend:
    """See ``Backend``.

    Attributes:
        routes: what answers; set once the application is put together.
        app: the application, of which the routes want to know.
    """

    def __init__(self) -> None:
        self.routes: ASGIApp | None = None
        self.app: Any = None

    async def send(self, path: str, body: bytes, timeout: float) -> InnerReply:
        """See ``Backend.send``. The route itself minds the time.

        Raises:
            RefusedError: it answered with an error.
        """
        del timeout
        assert self.routes is not None, "the application is not put together"
        run = _Run(self.routes, self.app, path, body)
        try:
            status, headers = await run.started()
            reply = InnerReply(status, headers, run)
            if status == 200:
                return reply
            data = b"".join([piece async for piece in reply.pieces()])
            kept = {name: value for name, value in headers.items() if name == "retry-after"}
            raise RefusedError(status, orjson.loads(data), kept)
        except BaseException:
            await run.end()
            raise


class _Run:
    """A request to the application, in a task of its own."""

    def __init__(self, routes: ASGIApp, app: Any, path: str, body: bytes) -> None:
        self.body: asyncio.Queue[Piece] = asyncio.Queue()
        self._start: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._sent, self._gone = body, asyncio.Event()
        self._given = False
        self._task = asyncio.create_task(self._call(routes, app, path))

    async def _call(self, routes: ASGIApp, app: Any, path: str) -> None:
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json")],
            "client": None,
            "server": None,
            "app": app,
            "state": {},
        }
        failure: Exception = MalformedError("the route gave no answer")
        try:
            await routes(scope, self._receive, self._send)
        except Exception as error:
            failure = error
        finally:
            if not self._start.done():
                self._start.set_exception(failure)
            self.body.put_nowait(_END)

    async def _receive(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self._sent, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not self._start.done():
                self._start.set_result(message)
        elif message.get("body"):
            self.body.put_nowait(message["body"])

    async def started(self) -> tuple[int, dict[str, str]]:
        message = await self._start
        headers: Any = message.get("headers", ())
        return message["status"], {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}

    async def end(self) -> None:
        self._gone.set()
        with contextlib.suppress(Exception):  # it was answered, or has nobody to tell
            await self._task
        if not self._start.done():
            self._start.cancel()
        elif not self._start.cancelled():
            self._start.exception()
