"""The gateway in front of the routes: bodies in, answers out, and a client that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samebits.api.auth import DEFAULT_TENANT
from samebits.api.errors import ClientGoneError, DeadlineError, cut_off, error_response, failure, json_response
from samebits.api.job import disconnected
from samebits.api.service import Service
from samebits.api.stream import NAMED, PLAIN, SEND_GRACE_S
from samebits.errors import InputError, SamebitsError
from samebits.gateway.call import PATHS, CacheAsked, Call
from samebits.gateway.gateway import CACHE_HEADER, Gateway, Live, find_route
from samebits.gateway.json_body import read_json
from samebits.ledger.routes import GENERATE

_CACHE_ASKED: Final[dict[str, CacheAsked]] = {"bypass": "bypass", "refresh": "refresh"}
_STREAM: Final = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


@dataclass(frozen=True)
class _Path:
    """What the metrics know of a route that the router has not seen."""

    path: str


class Front:
    """Takes the requests that generate. What neither a policy nor the cache nor a ledger nor an upstream has a part in
    goes to the routes as it came.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        service.inner.routes = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        gateway = self._service.gateway
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in PATHS or gateway is None:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        tenant: str = scope.get("state", {}).get("tenant", DEFAULT_TENANT)
        # To pass a cache by that has no part in the request is nothing to do.
        named = b"x-samebits-policy" in headers or headers.get(CACHE_HEADER.encode(), b"bypass") != b"bypass"
        if not named and not gateway.is_needed(tenant):
            await self._app(scope, receive, send)
            return
        try:
            body, messages = await _read(receive, self._service.config.request_timeout)
        except SamebitsError as error:
            await error_response(error)(scope, receive, send)
            return
        sent_as = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if sent_as != b"application/json":  # the route says what is wrong
            await self._app(scope, _replayed(messages, receive), send)
            return
        try:
            value = read_json(body)
        except SamebitsError:
            await self._app(scope, _replayed(messages, receive), send)
            return
        alone = next(iter(gateway.routes)) if len(gateway.routes) == 1 else None
        if isinstance(value, dict) and value.get("model") is None and scope["path"] == GENERATE and alone is not None:
            value["model"] = alone
        route = find_route(gateway.routes, value.get("model")) if isinstance(value, dict) else None
        if route is None or (scope["path"] == GENERATE and route.engine == "upstream"):
            await self._app(scope, _replayed(messages, receive), send)
            return
        scope["route"] = _Path(scope["path"])
        await self._answer(gateway, scope, receive, send, value, tenant)

    async def _answer(
        self, gateway: Gateway, scope: Scope, receive: Receive, send: Send, body: dict[str, Any], tenant: str
    ) -> None:
        headers = dict(scope["headers"])
        arrived = time.perf_counter()
        try:
            policy = headers.get(b"x-samebits-policy")
            call = Call(
                path=scope["path"],
                body=body,
                tenant=tenant,
                policy=None if policy is None else policy.decode("latin-1"),
                cache=_cache_asked(headers.get(CACHE_HEADER.encode())),
                arrived=arrived,
            )
            answer = await _unless_gone(gateway, call, receive)
        except Exception as error:
            await error_response(error)(scope, receive, send)
            return
        if isinstance(answer, Live):
            await _stream(answer, receive, send)
        else:
            await json_response(answer.body, 200, answer.headers)(scope, receive, send)


async def _unless_gone(gateway: Gateway, call: Call, receive: Receive) -> Any:
    """The answer to a call.

    Raises:
        ClientGoneError: the client went away before.
    """
    work = asyncio.create_task(gateway.answer(call))
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientGoneError("the client closed the connection")
    finally:
        work.cancel()
        gone.cancel()


async def _stream(answer: Live, receive: Receive, send: Send) -> None:
    events = _Events(answer, send)
    pump = asyncio.create_task(events.pump())
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        if pump.done():
            pump.result()
    except asyncio.CancelledError:  # the server ends
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        with contextlib.suppress(TimeoutError):  # it may be the client that does not read
            async with asyncio.timeout(SEND_GRACE_S):
                await events.end(cut_off())
        raise
    finally:
        pump.cancel()
        gone.cancel()
        answer.close()


class _Events:
    """The events of an answer, on their way to a client."""

    def __init__(self, answer: Live, send: Send) -> None:
        self._answer, self._send = answer, send
        self._sent = 0

    async def pump(self) -> None:
        """Sends all of them."""
        headers = [*_STREAM, *((name.encode(), value.encode()) for name, value in self._answer.headers.items())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for piece in self._answer.pieces:
                self._sent += piece.count(b"\n\n")  # their ends; JSON has no line feed
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception as error:
            await self.end(error)
        else:
            await self.end(None)

    async def end(self, error: Exception | None) -> None:
        """Sends what is wrong as the last event, if anything is, and ends the stream."""
        style, last = NAMED if self._answer.named else PLAIN, b""
        if error is not None:
            last = style.encode(style.of_error(failure(error).body), self._sent)
        await self._send({"type": "http.response.body", "body": last, "more_body": False})


def _cache_asked(value: bytes | None) -> CacheAsked | None:
    if value is None:
        return None
    asked = _CACHE_ASKED.get(value.decode("latin-1").strip().lower())
    if asked is None:
        raise InputError(
            f"{value.decode('latin-1')!r:.80} is unknown", field=CACHE_HEADER, remedy="Use bypass or refresh."
        )
    return asked


async def _read(receive: Receive, seconds: float) -> tuple[bytes, list[Message]]:
    """The body of a request, and the messages that it came in.

    Raises:
        DeadlineError: it does not come within the time that a request may take.
        ClientGoneError: the client closed the connection before its end.
    """
    messages: list[Message] = []
    try:
        async with asyncio.timeout(seconds):
            while not messages or messages[-1].get("more_body", False):
                messages.append(await receive())
    except TimeoutError:
        raise DeadlineError(f"the body was not complete after {seconds:g} s; send it faster") from None
    if messages[-1]["type"] == "http.disconnect":
        raise ClientGoneError("the client closed the connection before the end of the body")
    return b"".join(m.get("body", b"") for m in messages), messages


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    """``receive``, after the messages that were taken from it already."""
    left = iter(messages)

    async def replayed() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return replayed
