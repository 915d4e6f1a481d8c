"""Clients that go away: the upstream stops when nobody waits any longer, and not before."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from stub import Stub, chat

from waiting import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"
FOREVER = 10 * PATIENCE_S  # no test waits for it


def asking(server: Any, **body: Any) -> http.client.HTTPConnection:
    """A connection on which a request was sent."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    whole = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0} | body
    connection.request("POST", CHAT, json.dumps(whole), {"content-type": "application/json"})
    return connection


class Slow:
    """An upstream that begins an answer and does not end it.

    Attributes:
        asked: requests that came.
        closed: connections that were closed on it.
    """

    def __init__(self, begins: bool) -> None:
        self.asked = self.closed = 0
        self._begins = begins
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            data = b""
            while not data.endswith(b"}"):
                if not (piece := connection.recv(65536)):
                    return  # it was closed before a whole request came
                data += piece
            self.asked += 1
            if self._begins:
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
                connection.sendall(head + b'{"id": ')
            try:
                ended = connection.recv(1) == b""
            except ConnectionResetError:
                ended = True
            self.closed += ended

    def close(self) -> None:
        self._socket.close()


@contextmanager
def slow(begins: bool) -> Iterator[Slow]:
    upstream = Slow(begins)
    try:
        yield upstream
    finally:
        upstream.close()


@pytest.mark.parametrize("begins", [False, True])
def test_the_connection_to_the_upstream_is_closed_at_once(serve: Any, begins: bool) -> None:
    with slow(begins) as upstream:
        server = serve(m={"base_url": upstream.url, "timeout": FOREVER})
        client = asking(server)
        wait_until(lambda: upstream.asked == 1)
        assert server.http.get("/health").status_code == 200
        assert upstream.closed == 0, "negative control: while somebody waits it stays open"
        client.close()
        wait_until(lambda: upstream.closed == 1)
        assert upstream.asked == 1


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("leader_first", [False, True])
def test_the_last_of_several_to_leave_stops_the_upstream(
    serve: Any, upstream: Stub, streams: bool, leader_first: bool
) -> None:
    upstream.delay, upstream.answer = FOREVER, lambda _: chat("A long text.")
    server = serve()
    clients = [asking(server, stream=streams)]
    flights = server.service.gateway._flights._open
    wait_until(lambda: len(flights) == 1 and upstream.open == 1)
    [flight] = flights.values()
    for waiting in (2, 3):
        clients.append(asking(server))
        wait_until(lambda waiting=waiting: flight._waiting == waiting)
    for left, client in zip((2, 1), clients if leader_first else reversed(clients), strict=False):
        client.close()
        wait_until(lambda left=left: flight._waiting == left)
        assert (upstream.calls, upstream.gone, upstream.open) == (1, 0, 1), "somebody waits still"
    (clients[-1] if leader_first else clients[0]).close()
    wait_until(lambda: upstream.gone == 1 and upstream.open == 0)
    assert len(flights) == 0
    upstream.delay = 0.0
    assert server.post(CHAT, model="m", messages=[{"role": "user", "content": "Hi"}]).status_code == 200


def test_nothing_is_sent_again_for_a_client_that_left(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: (503, {"error": {"message": "busy"}})
    server = serve(m={"attempts": 10, "breaker_failures": 100})
    client = asking(server)
    wait_until(lambda: upstream.calls >= 1)
    client.close()
    gateway = server.service.gateway
    wait_until(lambda: len(gateway._flights) == 0)
    assert upstream.calls < 10, "all attempts were made"
