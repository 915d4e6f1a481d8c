"""What stands before every route: pure ASGI, so that a stream is never buffered and a disconnect is seen."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samebits.api.errors import BodyTooLargeError, DrainingError, error_response
from samebits.api.service import Service

ALWAYS_ANSWERED: Final = frozenset({"/health", "/ready", "/metrics"})


class Gate:
    """Refuses what comes while the server drains, and bodies that are too large; counts what is under way."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] in ALWAYS_ANSWERED:
            await self._app(scope, receive, send)
            return
        if self._service.draining:
            await error_response(DrainingError("the server is shutting down; send the request to another"))(
                scope, receive, send
            )
            return
        self._service.open_requests += 1
        try:
            await self._app(scope, _limited(receive, self._service.config.body_limit), send)
        finally:
            self._service.open_requests -= 1


def _limited(receive: Receive, limit: int) -> Receive:
    """``receive``, which raises BodyTooLargeError once a body is longer than the limit."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        if message["type"] == "http.request":
            total += len(message.get("body", b""))
            if total > limit:
                raise BodyTooLargeError(f"the body is longer than {limit} bytes")
        return message

    return counted
