"""What stands before every route: pure ASGI, so that a stream is never buffered and a disconnect is seen."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samebits.api.auth import ApiKeys
from samebits.api.errors import BodyTooLargeError, DrainingError, UnauthorizedError, cut_off, error_response
from samebits.api.metrics import Metrics
from samebits.api.service import Service
from samebits.errors import SamebitsError

log = logging.getLogger(__name__)
# Answered without a key and while the server drains: for those who watch it.
PROBES: Final = frozenset({"/health", "/ready"})


class Gate:
    """Refuses requests without a key, requests that come while the server drains, and bodies that are too large; counts
    what is under way.
    """

    def __init__(self, app: ASGIApp, service: Service, keys: ApiKeys, metrics: Metrics) -> None:
        self._app, self._service, self._keys, self._metrics = app, service, keys, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, started = time.perf_counter(), 500, False

        async def noted(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
            await send(message)

        try:
            if refusal := self._refusal(scope):
                await error_response(refusal)(scope, receive, noted)
            elif scope["path"] in PROBES:
                await self._app(scope, receive, noted)
            else:
                await self._counted(scope, receive, noted)
        except asyncio.CancelledError:
            if not self._service.draining:
                raise
            if not started:  # the drain is over, and this is the last word of the task
                await error_response(cut_off())(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            seconds = time.perf_counter() - start
            self._metrics.answered(route, scope["method"], status, seconds)
            log.debug("%s %s: %d after %.3f s", scope["method"], route, status, seconds)

    def _refusal(self, scope: Scope) -> SamebitsError | None:
        if scope["path"] in PROBES:
            return None
        headers = dict(scope["headers"])
        tenant = self._keys.tenant(headers.get(b"authorization"))
        if tenant is not None:
            scope.setdefault("state", {})["tenant"] = tenant
        else:
            return UnauthorizedError("the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")
        if self._service.draining and scope["path"] != "/metrics":
            return DrainingError("the server is shutting down; send the request to another")
        length, limit = headers.get(b"content-length", b"0"), self._service.config.body_limit
        return _too_large(limit) if length.isdigit() and int(length) > limit else None

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._service.open_requests += 1
        try:
            await self._app(scope, _limited(receive, self._service.config.body_limit), send)
        finally:
            self._service.open_requests -= 1


def _limited(receive: Receive, limit: int) -> Receive:
    """``receive``, which raises BodyTooLargeError once a body without a stated length is longer than the limit."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        if message["type"] == "http.request":
            total += len(message.get("body", b""))
            if total > limit:
                raise _too_large(limit)
        return message

    return counted


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is longer than {limit} bytes")
