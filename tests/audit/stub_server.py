"""An OpenAI-compatible server with known faults: real HTTP on a free port, in a thread, with a function as model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httptools

from waiting import PATIENCE_S

MODEL = "stub"
BACKGROUND = "Write a story with these words"  # how requests of the background load begin


@dataclass(frozen=True)
class Incoming:
    """A chat request as the server sees it.

    Attributes:
        number: chat requests before this one.
        in_flight: chat requests at the server, this one included.
        cached: whether the same messages were seen since the cache was emptied.
        background: requests of the audit's background load at the server.
    """

    headers: Mapping[str, str]
    body: Mapping[str, Any]
    number: int
    in_flight: int
    cached: bool
    background: int

    @property
    def prompt(self) -> str:
        """The last message."""
        text: str = self.body["messages"][-1]["content"]
        return text


@dataclass(frozen=True)
class Answer:
    """What it answers.

    Attributes:
        text: one token a word.
        status: other than 200: the error of ``text``.
        headers: besides the usual ones.
        delay: seconds before it.
        crowd: not before so many requests were in flight at once.
        drop: close the connection instead: None, ``before`` or ``within`` the answer.
    """

    text: str = "yes"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    crowd: int = 0
    drop: str | None = None
    logprob: float = -0.25
    fingerprint: str | None = "stub-1"
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Stub:
    """The server.

    Args:
        model: from a request to its answer.
        models: what /v1/models lists.
        flush: whether /flush_cache exists.
        reset: from the number of calls before it to whether /reset_prefix_cache does it this time, as vLLM's cannot
            while requests are there; None: there is no such path.
        version: what /version tells; None: there is no such path.
    """

    def __init__(
        self,
        model: Callable[[Incoming], Answer],
        *,
        models: tuple[str, ...] = (MODEL,),
        flush: bool = True,
        reset: Callable[[int], bool] | None = None,
        version: object = None,
    ) -> None:
        self.version = version
        self.model, self.models, self.has_flush, self.reset = model, models, flush, reset
        self.requests: list[Incoming] = []
        self.flushes = self.resets = 0
        self.in_flight = 0
        self.background = 0
        self.most_in_flight = 0
        self.seen: set[str] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._end.wait()
        server.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE_S)

    @property
    def asked(self) -> list[Mapping[str, Any]]:
        """The bodies of all chat requests."""
        return [request.body for request in self.requests]


@contextmanager
def stub(model: Callable[[Incoming], Answer], **options: Any) -> Iterator[Stub]:
    server = Stub(model, **options)
    try:
        yield server
    finally:
        server.close()


class _Connection(asyncio.Protocol):
    def __init__(self, server: Stub) -> None:
        self._stub = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[str, str] = {}
        self._body = b""
        self._path = ""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url.decode().partition("?")[0]
        self._headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self._stub.models]})
        elif self._path == "/flush_cache" and self._stub.has_flush:
            self._stub.flushes += 1
            self._stub.seen.clear()
            self._send(200, {"pages": 0})
        elif self._path == "/reset_prefix_cache" and self._stub.reset is not None:
            done = self._stub.reset(self._stub.resets)
            self._stub.resets += 1
            if done:
                self._stub.seen.clear()
            self._send(200, {"success": done})
        elif self._path == "/version" and self._stub.version is not None:
            self._send(200, self._stub.version, {"server": "stub/3"})
        elif self._path == "/v1/chat/completions":
            self._task = asyncio.ensure_future(self._chat(json.loads(self._body), self._headers))
        else:
            self._send(404, {"error": {"message": "no such path", "type": "x", "param": None, "code": "not_found"}})

    async def _chat(self, body: dict[str, Any], headers: Mapping[str, str]) -> None:
        server = self._stub
        messages = json.dumps(body["messages"])
        is_background = body["messages"][-1]["content"].startswith(BACKGROUND)
        server.in_flight += 1
        server.background += is_background
        server.most_in_flight = max(server.most_in_flight, server.in_flight)
        try:
            incoming = Incoming(
                headers,
                body,
                number=len(server.requests),
                in_flight=server.in_flight,
                cached=messages in server.seen,
                background=server.background,
            )
            server.requests.append(incoming)
            answer = server.model(incoming)
            await asyncio.sleep(answer.delay)
            while server.most_in_flight < answer.crowd:
                await asyncio.sleep(0.002)
            server.seen.add(messages)
        finally:
            server.in_flight -= 1
            server.background -= is_background
        if answer.drop == "before":
            self._transport.close()
        elif answer.status != 200:
            error = {"message": answer.text, "type": "stub", "param": None, "code": f"stub_{answer.status}"}
            self._send(answer.status, {"error": error | dict(answer.extra)}, answer.headers)
        elif body.get("stream"):
            self._stream(incoming, answer)
        else:
            self._send(200, whole(incoming, answer), answer.headers, cut=answer.drop == "within")

    def _send(self, status: int, body: object, headers: Mapping[str, str] | None = None, *, cut: bool = False) -> None:
        data = json.dumps(body).encode()
        lines = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
        self._transport.write(head.encode() + (data[: len(data) // 2] if cut else data))
        if cut:
            self._transport.close()

    def _stream(self, incoming: Incoming, answer: Answer) -> None:
        complete = whole(incoming, answer)
        choice = complete["choices"][0]
        common = {k: v for k, v in complete.items() if k not in ("choices", "usage")} | {
            "object": "chat.completion.chunk"
        }
        words = choice["message"]["content"].split(" ")
        chunks = [common | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        for i, word in enumerate(words):
            piece: dict[str, Any] = {"index": 0, "delta": {"content": word if i == 0 else f" {word}"}}
            if choice["logprobs"]:
                piece["logprobs"] = {"content": [choice["logprobs"]["content"][i]]}
            if "token_ids" in choice:
                piece["token_ids"] = [choice["token_ids"][i]]
            chunks.append(common | {"choices": [piece]})
        chunks.append(common | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
        if (incoming.body.get("stream_options") or {}).get("include_usage"):
            chunks.append(common | {"choices": [], "usage": complete["usage"]})
        events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        if answer.drop == "within":
            events = events[: len(events) // 2]
        else:
            events.append("data: [DONE]\n\n")
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for event in events:
            data = event.encode()
            self._transport.write(data[:7])  # a reader has to join pieces
            self._transport.write(data[7:])
        self._transport.close()


def whole(incoming: Incoming, answer: Answer) -> dict[str, Any]:
    """A response that is not streamed."""
    words = answer.text.split(" ")
    ids = [sum(word.encode()) for word in words]
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": answer.text},
        "logprobs": None,
        "finish_reason": "stop",
    }
    if incoming.body.get("logprobs"):
        top = incoming.body.get("top_logprobs", 0)
        choice["logprobs"] = {
            "content": [
                {
                    "token": word,
                    "logprob": answer.logprob,
                    "bytes": None,
                    "top_logprobs": [{"token": word, "logprob": answer.logprob, "bytes": None}][:top],
                }
                for word in words
            ]
        }
    if incoming.body.get("return_token_ids"):
        choice["token_ids"] = ids
    response = {
        "id": f"chatcmpl-{incoming.number}",
        "object": "chat.completion",
        "created": 1_700_000_000 + incoming.number,
        "model": incoming.body["model"],
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(incoming.prompt.split()),
            "completion_tokens": len(words),
            "total_tokens": len(incoming.prompt.split()) + len(words),
            "prompt_tokens_details": {"cached_tokens": len(incoming.prompt.split()) if incoming.cached else 0},
        },
    }
    if answer.fingerprint is not None:
        response["system_fingerprint"] = answer.fingerprint
    if answer.seed is not None:
        response["samebits"] = {"seed": answer.seed}
    return response | dict(answer.extra)
