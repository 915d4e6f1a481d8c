"""Server-sent events: out of bytes, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from samebits.gateway.errors import BrokenOffError, MalformedError
from samebits.gateway.json_body import read_answer, write_json

DONE: Final = b"data: [DONE]\n\n"
MOST_EVENT: Final = 64 << 20  # bytes of one event
TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})  # last of /v1/responses


async def read_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any] | None]:
    """The JSON of each event as it is complete, and None for ``[DONE]``. Comments and other fields are passed over.

    Raises:
        MalformedError: the data of an event is no JSON object, or too long.
        BrokenOffError: it ends within an event.
    """
    rest, data = b"", b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) + len(data) > MOST_EVENT:
            raise MalformedError("an event of the upstream does not end")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data += (b"\n" if data else b"") + line[5:].removeprefix(b" ")
            elif not line and data:
                yield _parsed(data)
                data = b""
    if data or rest.startswith(b"data:"):  # some servers leave out the last empty line
        try:
            last = _parsed(data or rest[5:].strip())
        except MalformedError:
            raise BrokenOffError("the stream of the upstream broke off") from None
        yield last


def _parsed(data: bytes) -> dict[str, Any] | None:
    if data.strip() == b"[DONE]":
        return None
    try:
        value = read_answer(data)
    except ValueError:
        raise MalformedError("an event of the upstream is not JSON") from None
    if not isinstance(value, dict):
        raise MalformedError("an event of the upstream is not an object")
    return value


def plain_event(chunk: dict[str, Any]) -> bytes:
    """An event of the routes whose chunks have no name."""
    return b"data: " + write_json(chunk) + b"\n\n"


def named_event(chunk: dict[str, Any]) -> bytes:
    """An event of /v1/responses: named by its type."""
    return b"event: " + str(chunk.get("type")).encode() + b"\ndata: " + write_json(chunk) + b"\n\n"
