"""What one request may make of a server: each bound holds, and just below it everything works."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from live import NAME, Live, error_of, live
from test_disconnects import idle_within, reset

from samebits import LLM

COMPLETIONS = "/v1/completions"
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
BODY = json.dumps({"model": NAME, "prompt": "a", "max_tokens": 1}).encode()


def connect(api: Live) -> socket.socket:
    host, port = api.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_body_that_does_not_come(model_folder: str) -> None:
    with LLM(model_folder) as llm, live({NAME: llm}, request_timeout=0.3) as api:
        with connect(api) as sock:
            sock.sendall(HEAD % len(BODY) + BODY[:-1])
            answer = sock.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
        idle_within(api, 5)
        with connect(api) as sock:  # the control: it is the last byte that was missing
            sock.sendall(HEAD % len(BODY) + BODY)
            assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_breaks_off_is_no_fault_of_the_server(api: Live, caplog: pytest.LogCaptureFixture) -> None:
    with connect(api) as sock:
        sock.sendall(HEAD % len(BODY) + BODY[:-1])
        reset(sock)
    idle_within(api, 5)
    assert caplog.records == []
    assert 'route="/v1/completions",status="499"}' in api.http.get("/metrics").text


@pytest.mark.parametrize(
    ("path", "most", "beyond", "field"),
    [
        (COMPLETIONS, {"stop": "x" * 1000}, {"stop": "x" * 1001}, "stop"),
        (COMPLETIONS, {"stop": ["x" * 1000]}, {"stop": ["a", "x" * 1001]}, "stop[1]"),
        (COMPLETIONS, {"stop_token_ids": [1] * 1024}, {"stop_token_ids": [1] * 1025}, "stop_token_ids"),
        (COMPLETIONS, {"prompt": ["a"] * 16, "n": 128}, {"prompt": ["a"] * 17, "n": 128}, "n"),
        (
            COMPLETIONS,
            {"prompt": ["a"] * 2, "use_beam_search": True, "best_of": 16},
            {"prompt": ["a"] * 129, "use_beam_search": True, "best_of": 16},
            "best_of",
        ),
        ("/generate", {"rid": "x" * 256}, {"rid": "x" * 257}, "rid"),
    ],
)
def test_what_answers_repeat_is_bounded(
    api: Live, path: str, most: dict[str, Any], beyond: dict[str, Any], field: str
) -> None:
    base: dict[str, Any] = {"prompt": "a", "max_tokens": 1} if path == COMPLETIONS else {"text": "a"}
    assert api.post(path, model=NAME, **(base | most)).status_code == 200
    assert api.refused(path, **(base | beyond))["param"] == field


def test_one_token_has_one_bias(api: Live) -> None:
    for spelled in ("01", "+1", "1 ", "-0", ""):
        error = error_of(api.post(COMPLETIONS, model=NAME, prompt="a", logit_bias={"1": 5, spelled: -5}), 400)
        assert str(error["param"]).startswith("logit_bias"), spelled
    assert api.complete("a", logit_bias={"0": 1, "10": 5}, max_tokens=1)
