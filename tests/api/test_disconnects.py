"""A client that goes away takes its request with it."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from live import NAME, Live, live

from samebits import LLM
from waiting import PATIENCE_S, wait_until

BODY: dict[str, Any] = {"model": NAME, "prompt": "Once", "max_tokens": 500, "ignore_eos": True}


@contextmanager
def connection(api: Live, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A socket on which the request was sent and nothing was read."""
    host, port = api.url.removeprefix("http://").split(":")
    content = json.dumps(body).encode()
    lines = [
        "POST /v1/completions HTTP/1.1",
        "host: x",
        "content-type: application/json",
        f"content-length: {len(content)}",
    ]
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as made:
        made.sendall("\r\n".join([*lines, "", ""]).encode() + content)
        yield made


def reset(sock: socket.socket) -> None:
    """Closes as a killed process does: without a farewell."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def is_idle(api: Live) -> bool:
    """Whether nothing runs and all pages are free."""
    return not (api.engine.unfinished or api.engine.pool.held or api.driver.choices or api.service.open_requests)


def wait_for_idle(api: Live) -> None:
    wait_until(lambda: is_idle(api), "the request outlives its client")


def kill(api: Live, times: int, seed: int) -> None:
    """Clients that go away after some tokens. Every third time the engine computes on meanwhile; else it stands still
    until the server has noticed, so that no answer can have come to its own end.
    """
    rng = random.Random(seed)
    before = api.complete("Once", max_tokens=20)
    for i in range(times):
        stream = i % 2 == 0
        body = BODY | {"stream": stream, "n": rng.choice([1, 3])}
        with api.standing(steps=rng.randrange(40)) as engine, connection(api, body) as sock:
            assert engine.reached.wait(PATIENCE_S)
            assert api.driver.choices == body["n"]
            if stream:
                assert sock.recv(100).startswith(b"HTTP/1.1 200")
            if i % 3 == 0:
                engine.leave.set()
            reset(sock)
            wait_until(lambda: not api.driver.choices, "the request outlives its client")
        wait_for_idle(api)
    after = api.complete("Once", max_tokens=20)
    assert after["choices"] == before["choices"]
    assert after["samebits"]["logprobs_sha256"] == before["samebits"]["logprobs_sha256"]


@pytest.fixture(scope="module")
def own_api(model_folder: str) -> Iterator[Live]:
    """One that nobody else has asked for anything."""
    with LLM(model_folder) as llm, live({NAME: llm}) as server:
        yield server


def test_killed_clients(own_api: Live, caplog: pytest.LogCaptureFixture) -> None:
    kill(own_api, 20, seed=1)
    assert caplog.records == [], "a client that leaves is no fault of the server"
    assert 'route="/v1/completions",status="499"}' in own_api.http.get("/metrics").text


@pytest.mark.proof
def test_killed_clients_500_times(own_api: Live) -> None:
    kill(own_api, 500, seed=2)


def test_negative_control_a_client_that_stays_keeps_its_request(own_api: Live) -> None:
    with own_api.standing(steps=5) as engine, connection(own_api, BODY | {"stream": True}) as sock:
        assert engine.reached.wait(PATIENCE_S)
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        assert own_api.http.get("/health").status_code == 200, "the server has had time to look after everybody"
        assert own_api.driver.choices == own_api.service.open_requests == 1
        reset(sock)
    wait_for_idle(own_api)


def test_a_client_that_does_not_read_is_given_up(model_folder: str) -> None:
    """Its buffers fill up and the stream stands still; the deadline frees what it holds."""
    body = BODY | {"stream": True, "n": 16, "logprobs": 20, "max_tokens": 480}
    with LLM(model_folder) as llm:
        with live({NAME: llm}, request_timeout=1.0) as api, connection(api, body) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wait_until(lambda: 'route="/v1/completions"' in api.http.get("/metrics").text, "it is not given up")
            wait_for_idle(api)
        with live({NAME: llm}) as again:
            assert again.complete(max_tokens=1)


def test_half_a_request_and_nothing_more(api: Live) -> None:
    """A client that leaves while it sends does not disturb anybody."""
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
        sock.sendall(b"content-length: 1000\r\n\r\n{")
        wait_until(lambda: api.service.open_requests == 1)
        reset(sock)
    wait_for_idle(api)
    assert api.complete(max_tokens=1)
