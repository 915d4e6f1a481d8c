"""Routes that read their bodies strictly: as JSON, once, and within the time of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from samebits.api.errors import ClientGoneError, DeadlineError
from samebits.gateway.json_body import read_json


class _StrictRequest(Request):
    """A request whose JSON was read by ``read_json``."""

    parsed: Any = None

    async def json(self) -> Any:
        return self.parsed


class StrictRoute(APIRoute):
    """A route whose body is read by ``read_json``, and only if it is sent as JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that FastAPI makes, given a request that is read already."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if self.body_field is None:
                return await handler(request)
            # A page of another site can make a browser send text/plain here unasked, but not application/json.
            sent_as = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if sent_as != "application/json":
                raise HTTPException(415, f"the body is sent as {sent_as or 'nothing'!r}, not as 'application/json'")
            own = _StrictRequest(request.scope, request.receive)
            own.parsed = read_json(await _body(own))
            return await handler(own)

        return strict


async def _body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        DeadlineError: it does not come within the time that a request may take.
        ClientGoneError: the client closed the connection before its end.
    """
    seconds = request.app.state.service.config.request_timeout
    try:
        async with asyncio.timeout(seconds):
            return await request.body()
    except TimeoutError:
        raise DeadlineError(f"the body was not complete after {seconds:g} s; send it faster") from None
    except ClientDisconnect:
        raise ClientGoneError("the client closed the connection before the end of the body") from None
