"""A client that goes away takes its request with it."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from live import NAME, Live, live

from samebits import LLM

GONE_WITHIN_S = 2.0
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
    with socket.create_connection((host, int(port)), timeout=30) as made:
        made.sendall("\r\n".join([*lines, "", ""]).encode() + content)
        yield made


def reset(sock: socket.socket) -> None:
    """Closes as a killed process does: without a farewell."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def idle_within(api: Live, seconds: float) -> float:
    """Waits until nothing runs and all pages are free; the time it took."""
    begin = time.monotonic()
    while api.engine.unfinished or api.engine.pool.held or api.driver.choices or api.service.open_requests:
        assert time.monotonic() - begin < seconds, "the request outlives its client"
        time.sleep(0.005)
    return time.monotonic() - begin


def kill(api: Live, times: int, seed: int) -> None:
    rng = random.Random(seed)
    cut = 0
    before = api.complete("Once", max_tokens=20)
    for i in range(times):
        stream = i % 2 == 0
        with connection(api, BODY | {"stream": stream, "n": rng.choice([1, 3])}) as sock:
            if stream:
                assert sock.recv(100).startswith(b"HTTP/1.1 200")
            else:
                end = time.monotonic() + 10
                while not api.engine.unfinished:
                    assert time.monotonic() < end, "it never ran"
                    time.sleep(0.001)
            time.sleep(rng.random() * 0.02)
            cut += bool(api.engine.unfinished)
            reset(sock)
        idle_within(api, GONE_WITHIN_S)
    assert cut >= 0.9 * times, f"only {cut} of {times} answers were cut off: not exercised"
    after = api.complete("Once", max_tokens=20)
    assert after["choices"] == before["choices"]
    assert after["samebits"]["logprobs_sha256"] == before["samebits"]["logprobs_sha256"]


@pytest.fixture(scope="module")
def slow_api(model_folder: str) -> Iterator[Live]:
    """One whose answers take long enough to be cut off."""
    with LLM(model_folder, threads=1, isa="scalar") as llm, live({NAME: llm}) as server:
        yield server


def test_killed_clients(slow_api: Live, caplog: pytest.LogCaptureFixture) -> None:
    kill(slow_api, 20, seed=1)
    assert caplog.records == [], "a client that leaves is no fault of the server"
    assert 'route="/v1/completions",status="499"}' in slow_api.http.get("/metrics").text


@pytest.mark.proof
def test_killed_clients_500_times(slow_api: Live) -> None:
    kill(slow_api, 500, seed=2)


def test_negative_control_a_client_that_stays_keeps_its_request(slow_api: Live) -> None:
    with connection(slow_api, BODY | {"stream": True}) as sock:
        sock.recv(100)
        with pytest.raises(AssertionError, match="outlives"):
            idle_within(slow_api, 0.05)
        reset(sock)
    idle_within(slow_api, GONE_WITHIN_S)


def test_a_client_that_does_not_read_is_given_up(model_folder: str) -> None:
    """Its buffers fill up and the stream stands still; the deadline frees what it holds."""
    with LLM(model_folder) as llm, live({NAME: llm}, request_timeout=1.0) as api:
        body = BODY | {"stream": True, "n": 16, "logprobs": 20, "max_tokens": 480}
        with connection(api, body) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle_within(api, 1.0 + GONE_WITHIN_S + 2)  # the deadline, and a second to tell the client
            assert api.complete(max_tokens=1)


def test_half_a_request_and_nothing_more(api: Live) -> None:
    """A client that leaves while it sends does not disturb anybody."""
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
        sock.sendall(b"content-length: 1000\r\n\r\n{")
        time.sleep(0.05)
        reset(sock)
    idle_within(api, GONE_WITHIN_S)
    assert api.complete(max_tokens=1)
