"""A server of OpenAI's API that costs next to nothing, in a process of its own: the other side is measured."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import httptools
import uvloop


class Stub(asyncio.Protocol, ABC):
    """One connection. ``answer`` is called for each request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._parser = httptools.HttpRequestParser(self)
        self.url = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_message_complete(self) -> None:
        self.answer()

    @abstractmethod
    def answer(self) -> None:
        """Answers the request now or later, by ``send``."""

    def send(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)


def chat_answer(text: str) -> bytes:
    """The body of an answer to a chat request."""
    words = len(text.split())
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "system_fingerprint": "stub",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": words, "total_tokens": 9 + words},
    }
    return json.dumps(answer).encode()


@contextmanager
def running(stub: Callable[[], Stub]) -> Iterator[int]:
    """The port of a stub that runs until the end of the block.

    Args:
        stub: makes one for each connection; a function of a module, since another process calls it.
    """
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_serve, args=(stub, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def _serve(stub: Callable[[], Stub], told: Connection) -> None:
    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(stub, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(forever())
