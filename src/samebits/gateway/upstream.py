"""Another server, over HTTP: patient with what passes, and with nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
import stamina

from samebits.audit.targets.keys import ApiKey, read_key
from samebits.audit.targets.proxy import proxy_url
from samebits.audit.targets.retry import asked_wait
from samebits.gateway.breaker import Breaker
from samebits.gateway.errors import (
    MalformedError,
    RefusedError,
    RestingError,
    UnreachableError,
    UpstreamError,
    UpstreamTimeoutError,
    stated,
)
from samebits.gateway.settings import UpstreamConfig

log = logging.getLogger(__name__)

# Below the 5 s after which common servers close an idle connection, so that no request meets a closing one.
IDLE_S: Final = 2.0
CONNECT_S: Final = 10.0
DRAIN_S: Final = 0.2
MOST_CONNECTIONS: Final = 1024
MOST_ANSWER: Final = 256 << 20  # bytes of an answer
MOST_ERROR: Final = 1 << 20  # bytes of an error that are read
LONGEST_WAIT_S: Final = 30.0  # an upstream that asks for more is believed, and the request fails at once
PASSED_ON: Final = ("retry-after", "retry-after-ms")
ABSENT: Final = frozenset({502, 503, 504})  # what proxies answer in place of a server that is not there


class UpstreamReply:
    """See ``Reply``."""

    def __init__(self, response: aiohttp.ClientResponse, upstream: Upstream) -> None:
        self.status = response.status
        self.headers = {key.lower(): value for key, value in response.headers.items()}
        self._response, self._upstream, self._name = response, upstream, upstream.name

    async def pieces(self) -> AsyncIterator[bytes]:
        """See ``Reply.pieces``."""
        size = 0
        try:
            async for piece in self._response.content.iter_any():
                size += len(piece)
                if size > MOST_ANSWER:  # after decompression: a small body may become a large one
                    raise MalformedError(f"the answer of {self._name} is longer than {MOST_ANSWER >> 20} MiB")
                yield piece
        except TimeoutError:
            self._upstream.failed()
            raise UpstreamTimeoutError(f"{self._name} did not complete its answer in time") from None
        except aiohttp.ClientError:
            self.broke_off()
            raise MalformedError(f"the connection to {self._name} broke within the answer") from None

    def shown(self, text: str) -> str:
        """See ``Reply.shown``."""
        return self._upstream.shown(text)

    def broke_off(self) -> None:
        """See ``Reply.broke_off``: the server failed, and may be started anew."""
        self._upstream.failed()
        self._upstream.when_lost()

    async def drain(self) -> None:
        """See ``Reply.drain``."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(DRAIN_S):
                await self._response.content.read()

    async def close(self) -> None:
        """See ``Reply.close``: a connection on which something is left to come is reset. Some servers go on writing for
        seconds into one that was only closed.
        """
        if self._response.content.at_eof():
            self._response.release()
            return
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            sock = connection.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._response.close()


class Upstream:
    """A server. See ``Backend``. To be opened in the event loop in which it is used.

    Args:
        name: of the model, for errors.

    Attributes:
        when_lost: called when there is no connection, one ends in mid-answer, a proxy says that nobody is behind it, or
            it is left alone: the server may be started anew.
        when_heard: called when an answer of its own begins.
    """

    def __init__(self, name: str, config: UpstreamConfig, breaker: Breaker | None = None) -> None:
        self.config = config
        self.breaker = breaker or Breaker(config.breaker_failures, config.breaker_seconds)
        self.sent = 0  # requests, each attempt of them
        self.when_lost: Callable[[], None] = lambda: None
        self.when_heard: Callable[[], None] = lambda: None
        self.name = name
        self._key: ApiKey | None = read_key(env=config.api_key_env, file=None)
        self._session: aiohttp.ClientSession | None = None
        self._proxy = proxy_url(config.base)  # looked up once; aiohttp would read files each time

    async def open(self) -> None:
        """Makes it ready; nothing is sent."""
        headers = {"content-type": "application/json", "user-agent": "samebits-gateway"}
        if self._key is not None:
            azure = self.config.api == "azure"
            key = self._key.reveal()
            headers["api-key" if azure else "authorization"] = key if azure else f"Bearer {key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MOST_CONNECTIONS, keepalive_timeout=IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            headers=headers,
        )

    async def close(self) -> None:
        """Closes its connections."""
        if self._session is not None:
            await self._session.close()

    async def send(self, path: str, body: bytes, timeout: float) -> UpstreamReply:
        """See ``Backend.send``. What fails in passing is sent again, with growing waits.

        Raises:
            UpstreamError: it cannot be reached, takes too long, is left alone, or answers with an error.
        """
        deadline = time.monotonic() + timeout
        if (left := self.breaker.wait()) > 0:
            raise RestingError(f"{self.name} failed too often; it is tried again in {left:.0f} s", left)
        try:
            try:
                reply = await self._once(path, body, deadline - time.monotonic())
            except UpstreamError as error:
                reply = await self._again(error, path, body, deadline)
        except UpstreamError as error:
            if isinstance(error, RefusedError) and error.status < 500:
                self.breaker.succeeded()  # it works, and said no
            else:
                self.failed()
            raise
        except BaseException:
            self.breaker.abandoned()
            raise
        self.breaker.succeeded()
        return reply

    def failed(self) -> None:
        """Notes a failure."""
        self.breaker.failed()
        if self.breaker.is_open:
            self.when_lost()

    async def _again(self, failure: UpstreamError, path: str, body: bytes, deadline: float) -> UpstreamReply:
        """The further attempts. The first one was made outside, since most requests need no other, and the machinery
        would cost each of them a quarter of a millisecond.
        """
        first: UpstreamError | None = failure
        async for attempt in stamina.retry_context(
            on=lambda error: _passes(error, deadline),
            attempts=self.config.attempts,
            timeout=max(deadline - time.monotonic(), 0.001),
        ):
            with attempt:
                if first is not None:
                    error, first = first, None
                    raise error
                log.warning("%s: attempt %d, after %s", self.name, attempt.num, _kind(failure))
                reply = await self._once(path, body, deadline - time.monotonic())
        return reply

    async def _once(self, path: str, body: bytes, timeout: float) -> UpstreamReply:
        assert self._session is not None, "the upstream is not open"
        self.sent += 1
        limit = aiohttp.ClientTimeout(total=max(timeout, 0.001), sock_connect=CONNECT_S)
        query = {} if self.config.api_version is None else {"api-version": self.config.api_version}
        url = self.config.base + path.removeprefix("/v1")
        try:
            response = await self._session.post(
                url, data=body, params=query, timeout=limit, allow_redirects=False, proxy=self._proxy
            )
        except aiohttp.ConnectionTimeoutError:
            self.when_lost()
            raise UnreachableError(f"{self.name} cannot be reached: no connection in time") from None
        except TimeoutError:
            raise UpstreamTimeoutError(f"{self.name} did not answer in time") from None
        except aiohttp.ClientError as error:
            self.when_lost()
            raise UnreachableError(f"{self.name} cannot be reached: {type(error).__name__}") from None
        if response.status in ABSENT:
            self.when_lost()
        elif response.status < 500:
            self.when_heard()
        if response.status == 200:
            return UpstreamReply(response, self)
        if not 400 <= response.status <= 599:  # no answer, and no error that a client could understand
            response.close()
            raise MalformedError(f"{self.name} answered with HTTP {response.status}; redirects are not followed")
        data = bytearray()
        try:
            await _read_into(data, response)
        except (aiohttp.ClientError, TimeoutError):
            pass  # what came of it may say enough
        finally:
            response.release()
        headers = {name: response.headers[name] for name in PASSED_ON if name in response.headers}
        raise RefusedError(response.status, self._error_body(response.status, bytes(data)), headers)

    def _error_body(self, status: int, data: bytes) -> dict[str, Any]:
        """OpenAI's error body with all four keys; the key, which servers like to quote, is taken out."""
        try:
            said = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            said = None
        error = said.get("error") if isinstance(said, dict) else None
        if not isinstance(error, dict):
            message = error or (said.get("message") or said.get("detail") if isinstance(said, dict) else None)
            error = {"message": message if isinstance(message, str) else f"{self.name} answered with HTTP {status}"}
        kind = "invalid_request_error" if status < 500 else "server_error"
        defaults = {"message": f"HTTP {status}", "type": kind, "param": None, "code": f"upstream_{status}"}
        return {"error": {**defaults, **stated(error, self.shown)}}

    def shown(self, text: str) -> str:
        """A text of the server without the key."""
        return text if self._key is None else self._key.scrub(text)

    async def ask(self, url: str, timeout: float) -> Any:
        """What the server says at an address of its own; None where it says nothing in JSON.

        Raises:
            UnreachableError: it cannot be reached, or fails.
        """
        assert self._session is not None, "the upstream is not open"
        try:
            limit = aiohttp.ClientTimeout(total=timeout)
            async with self._session.get(url, timeout=limit, proxy=self._proxy, allow_redirects=False) as response:
                if response.status >= 500:
                    raise UnreachableError(f"{self.name} cannot say what it is: HTTP {response.status}")
                if response.status != 200:
                    return None
                data = bytearray()
                await _read_into(data, response)
                return json.loads(data)
        except (ValueError, RecursionError):
            return None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError(f"{self.name} cannot be reached: {type(error).__name__}") from None


async def _read_into(data: bytearray, response: aiohttp.ClientResponse) -> None:
    """Adds a body to ``data``, up to ``MOST_ERROR`` bytes. It comes in as many pieces as the network likes."""
    async for piece in response.content.iter_any():
        data += piece[: MOST_ERROR - len(data)]
        if len(data) == MOST_ERROR:
            return


def _kind(error: UpstreamError) -> str:
    """What failed, without what the upstream says of it, which may quote the request."""
    return f"HTTP {error.status}" if isinstance(error, RefusedError) else type(error).__name__


def _passes(error: Exception, deadline: float) -> bool | float:
    """Whether to send once more: True with the usual wait, a number with that one."""
    if isinstance(error, UnreachableError):
        return True
    if not isinstance(error, RefusedError) or not error.passes:
        return False
    wait = asked_wait(error.headers, time.time())
    if wait is None:
        return True
    return wait if wait <= LONGEST_WAIT_S and time.monotonic() + wait < deadline else False
