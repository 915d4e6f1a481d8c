"""A server that ends and waits no longer: what an upstream still computes ends with an error, on every route."""

from __future__ import annotations

import json
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from stub import Stub
from tests.gateway.conftest import ask

from samebits.ledger import Ledger
from waiting import PATIENCE_S, wait_until

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
REQUESTS = [
    (CHAT, ask("a")),
    (CHAT, ask("b", stream=True)),
    (RESPONSES, {"model": "m", "input": "a"}),
    (CHAT, {**ask("c"), "response_format": {"type": "json_object"}}),
]


@pytest.mark.parametrize("how", ["drain timeout", "second signal"])
def test_what_an_upstream_still_computes_ends_with_an_error(
    serve: Any, upstream: Stub, tmp_path: Any, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    server = serve(drain_timeout=0.05 if how == "drain timeout" else PATIENCE_S, ledger={"url": url})
    upstream.stalled = True
    with ThreadPoolExecutor(len(REQUESTS)) as pool:
        answers = [pool.submit(server.post, path, **body) for path, body in REQUESTS]
        wait_until(lambda: upstream.open == len(REQUESTS))
        server.server.handle_exit(15, None)
        if how == "second signal":
            server.server.handle_exit(15, None)
        for (_, body), answer in zip(REQUESTS, answers, strict=True):
            response = answer.result()
            assert response.status_code == (200 if body.get("stream") else 503)
            last = response.text.split("data: ")[-1]
            assert json.loads(last)["error"]["code"] == "shutting_down"
    server.close()
    assert not [record for record in caplog.records if record.exc_info], "no traceback is logged"
    with Ledger.open(url, readonly=True) as ledger:
        assert [record.kind for record in ledger.records()] == ["cancelled"] * len(REQUESTS)
    upstream.stalled = False


def test_a_body_that_is_still_to_come_is_not_waited_for(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve(drain_timeout=0.05)
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
        connection.sendall(head.encode() + b'{"model"')
        wait_until(lambda: server.service.open_requests == 1)
        server.server.handle_exit(15, None)
        said = connection.makefile("rb").read()
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"shutting_down"' in said
    server.close()
    assert not [record for record in caplog.records if record.exc_info]
