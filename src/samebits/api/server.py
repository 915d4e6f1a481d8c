"""From a configuration to a process that answers, and its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping
from types import FrameType

import uvicorn

from samebits.api.app import make_app
from samebits.api.auth import ApiKeys
from samebits.api.config import ServerConfig
from samebits.api.service import Service
from samebits.llm import LLM

POLL_S = 0.05


class Server(uvicorn.Server):
    """uvicorn, with a drain: after the first SIGTERM or SIGINT new requests get 503 and running ones finish; after a
    second one, or the drain timeout, the process ends.
    """

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[str], None]) -> None:
        """Args: ready: called with the base URL as soon as requests are taken."""
        super().__init__(config)
        self.service = service
        self._ready = ready

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Begins to listen, and says so."""
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Takes the two signals, and gives them back. Unlike uvicorn's, does not raise them again at the end: an
        orderly end is exit code 0.
        """
        if threading.current_thread() is not threading.main_thread():  # signals are none of a thread's business
            yield
            return
        wanted = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins the drain; the second time, ends it."""
        del sig, frame
        if self.service.draining:
            self.should_exit = self.force_exit = True
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Ends the main loop when the drain is over."""
        if self.service.draining and not self.should_exit:
            self.should_exit = await self._drained()
        return await super().on_tick(counter)

    async def _drained(self) -> bool:
        deadline = time.monotonic() + self.service.config.drain_timeout
        while self.service.open_requests and not self.should_exit and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        return True


def make_server(config: ServerConfig, llms: Mapping[str, LLM], keys: ApiKeys, ready: Callable[[str], None]) -> Server:
    """A server over loaded models; ``run`` serves until a signal ends it."""
    app = make_app(config, llms, keys)
    settings = uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        log_level="warning",
        access_log=False,
        lifespan="on",
        server_header=False,
    )
    return Server(settings, app.state.service, ready)
