"""From a configuration to a process that answers, and its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping
from types import FrameType
from typing import Final

import uvicorn

from samebits.api.app import make_app
from samebits.api.auth import ApiKeys
from samebits.api.config import ServerConfig
from samebits.api.service import Service
from samebits.errors import InputError
from samebits.llm import LLM

log = logging.getLogger(__name__)
POLL_S: Final = 0.05
KEEP_ALIVE_S: Final = 75  # longer than clients keep a connection unused, so that they close it and never meet its end
SHUTDOWN_S: Final = 1  # for what the drain timeout has given up already
BACKLOG: Final = 2048  # connections that wait to be taken: uvicorn's own default


class Server(uvicorn.Server):
    """uvicorn, with a drain: after the first SIGTERM or SIGINT new requests get 503 and running ones finish; after a
    second one, or the drain timeout, running ones end with an error.
    """

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        """Args: ready: called as soon as requests are taken."""
        super().__init__(config)
        self.service = service
        self._ready = ready
        self._hurry = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen, and says so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until the end. Requires the main thread for signals to be taken."""
        try:
            super().run(sockets)
        finally:
            for served in self.service.models.values():
                served.driver.stop()  # if the application was not shut down

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
        """Begins the drain; the second time, cuts it short."""
        del sig, frame
        if self.service.draining:
            self._hurry = True
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Ends the main loop when the drain is over."""
        if self.service.draining and not self.should_exit:
            await self._drain()
            self.should_exit = True
        return await super().on_tick(counter)

    async def _drain(self) -> None:
        log.info("ending; %d requests are under way", self.service.open_requests)
        deadline = time.monotonic() + self.service.config.drain_timeout
        while self.service.open_requests and not self._hurry and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        for served in self.service.models.values():  # what still runs is told so, as an error
            served.driver.abandon("the server ended before the answer was complete")


def listen(config: ServerConfig) -> socket.socket:
    """A socket on the address of a configuration; to be opened first, since loading a model takes longer.

    Raises:
        InputError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"{config.host} port {config.port} cannot be listened on: {error}",
            field="port",
            remedy="End what uses it, or give another port; 0 takes a free one.",
        ) from error


def url_of(sock: socket.socket) -> str:
    """The base URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(config: ServerConfig, llms: Mapping[str, LLM], keys: ApiKeys, ready: Callable[[], None]) -> Server:
    """A server over loaded models; ``run(sockets=[listen(config)])`` serves until a signal ends it."""
    app = make_app(config, llms, keys)
    settings = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_level=config.log_level,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    return Server(settings, app.state.service, ready)
