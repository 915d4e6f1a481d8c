"""An upstream that records what it gets and answers as a test says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from waiting import PATIENCE_S

Answer = Callable[["Asked"], Any]


class Asked:
    """A request as it came."""

    def __init__(self, path: str, raw: bytes, headers: dict[str, str]) -> None:
        self.path, self.raw, self.headers = path, raw, headers
        self.body: dict[str, Any] = json.loads(raw)

    @property
    def last(self) -> str:
        return str(self.body["messages"][-1]["content"])


def chat(text: str = "Blue.", *, reason: str = "stop", model: str = "m-1", **others: Any) -> dict[str, Any]:
    """An answer of /v1/chat/completions."""
    return {
        "id": "upstream-1",
        "object": "chat.completion",
        "created": 7,
        "model": model,
        "system_fingerprint": "fp-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "logprobs": None,
                "finish_reason": reason,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        **others,
    }


class Stub:
    """A server in a thread.

    Attributes:
        answer: from a request to a JSON value, a pair of status and value, or an exception to end the connection with.
        delay: seconds before an answer, and between the pieces of a stream.
        held: while it is set, no answer begins.
        stalled: while it is set, no answer goes on after its first piece, and one without pieces does not come.
        pages: what it says of itself, by path.
        silent: while it is set, it says nothing of itself yet.
        lost: while it is set, every connection is broken.
        looked: how often it was asked for a page.
        asked: all requests.
        gone: how many clients went away before their answer was complete.
        open: requests under way.
    """

    def __init__(self) -> None:
        self.answer: Answer = lambda _: chat()
        self.delay, self.held, self.stalled = 0.0, False, False
        self.silent = self.lost = False
        self.looked = 0
        self.asked: list[Asked] = []
        self.pages: dict[str, Any] = {}
        self.gone = self.open = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    @property
    def calls(self) -> int:
        return len(self.asked)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{path:.*}", self._post)
        app.router.add_get("/{path:.*}", self._get)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server: Any = site._server
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _get(self, request: web.Request) -> web.Response:
        self.looked += 1
        page = self.pages.get(request.path)
        while self.silent:
            await asyncio.sleep(0.005)
        if self.lost:
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionResetError
        return web.json_response(page, status=404 if page is None else 200)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.path, await request.read(), dict(request.headers))
        self.asked.append(asked)
        self.open += 1
        try:
            while self.held:
                await asyncio.sleep(0.005)
            return await self._answered(request, asked)
        except (asyncio.CancelledError, ConnectionError):
            self.gone += 1
            raise
        finally:
            self.open -= 1

    async def _answered(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        status, value = 200, ConnectionResetError() if self.lost else self.answer(asked)
        if isinstance(value, web.Response):
            return value
        if isinstance(value, tuple):
            status, value = value
        if isinstance(value, Exception):
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionResetError
        if status != 200 or not asked.body.get("stream"):
            await self._pause()
            return web.json_response(value, status=status)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for chunk in chunks(asked, value):
            data = chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()
            await response.write(b"data: " + data + b"\n\n")
            if data != b"[DONE]":
                await self._pause()
        return response

    async def _pause(self) -> None:
        await asyncio.sleep(self.delay)
        while self.stalled:
            await asyncio.sleep(0.005)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        self._loop.close()


def chunks(asked: Asked, whole: Any) -> list[Any]:
    """The events of an answer; a list is sent as it is."""
    if isinstance(whole, list):
        return whole
    common = {name: value for name, value in whole.items() if name not in ("choices", "usage")}
    common["object"] = "chat.completion.chunk"
    events: list[Any] = []
    for choice in whole["choices"]:
        text, index = choice["message"]["content"], choice["index"]
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": text[i : i + 2]} for i in range(0, len(text), 2)]
        events += [
            {**common, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]}
            for delta in deltas
        ]
        end = {"index": index, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
        events.append({**common, "choices": [end]})
    if (asked.body.get("stream_options") or {}).get("include_usage"):
        events.append({**common, "choices": [], "usage": whole["usage"]})
    return [*events, b"[DONE]"]


@contextmanager
def stub() -> Iterator[Stub]:
    server = Stub()
    try:
        yield server
    finally:
        server.close()
