"""What comes in, and what a backend gives back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from samebits.ledger.routes import CHAT, COMPLETIONS, GENERATE, RESPONSES

PATHS: Final = frozenset({CHAT, COMPLETIONS, RESPONSES, GENERATE})
CacheAsked = Literal["bypass", "refresh"]


@dataclass(frozen=True)
class Call:
    """A request of a client.

    Attributes:
        path: the route.
        body: as it was read; its keys in their order.
        tenant: whose it is.
        policy: the value of ``x-samebits-policy``.
        cache: the value of ``x-samebits-cache``: ``bypass`` neither reads nor writes it, ``refresh`` writes.
        arrived: by ``time.perf_counter``.
    """

    path: str
    body: dict[str, Any]
    tenant: str
    policy: str | None = None
    cache: CacheAsked | None = None
    arrived: float = 0.0

    @property
    def streams(self) -> bool:
        """Whether the answer is to come in pieces."""
        return self.body.get("stream") is True


class Reply(Protocol):
    """An answer of a backend that has begun.

    Attributes:
        status: of HTTP.
        headers: by names in lower case.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The bytes of the body as they come.

        Raises:
            UpstreamError: it breaks off.
        """
        ...

    def shown(self, text: str) -> str:
        """What may be shown of a text of the backend: not the key that it was sent."""
        ...

    def broke_off(self) -> None:
        """Notes that the body has no end, though the connection ended in order."""
        ...

    async def drain(self) -> None:
        """Waits a moment for the end of a body of which nothing more is wanted, so that its connection can be kept."""
        ...

    async def close(self) -> None:
        """Gives it up, whether it was read or not; what computes it is told to stop."""
        ...


class Backend(Protocol):
    """What computes answers: an upstream, or an engine of this process."""

    async def send(self, path: str, body: bytes, timeout: float) -> Reply:
        """Sends a body and waits for the beginning of the answer, whatever its status.

        Raises:
            UpstreamError: there is none.
        """
        ...
