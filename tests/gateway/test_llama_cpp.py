"""The gateway before llama.cpp's own server (extra `peer`), with the model of the demo."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from live import Live, live, sse_data

from samebits.gateway.join import Joiner
from waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.peer
CHAT = "/v1/chat/completions"
SERVER = """
from pathlib import Path
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path = sys.argv[1]
p.port, p.n_parallel, p.n_ctx, p.warmup = 0, 2, 4096, False
server = xllamacpp.Server(p)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def address(smollm2_path: Path) -> Iterator[str]:
    pytest.importorskip("xllamacpp")
    command = [sys.executable, "-c", SERVER, str(smollm2_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def server(address: str) -> Iterator[Live]:
    model = {"engine": "upstream", "base_url": address, "api": "llamacpp"}
    with live({}, models={"m": model}, policies={"kind": {"regex": "[A-Z][a-z]+\\.?", "retries": 1}}) as made:
        yield made


def ask(content: str, **body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], "temperature": 0, "seed": 1} | body


def test_plain_and_streamed_answers_agree_and_are_kept(server: Live) -> None:
    body = ask("Name a fruit.", max_tokens=200)
    text = server.http.post(CHAT, json=body | {"stream": True}).text
    joiner = Joiner()
    for event in sse_data(iter(text.splitlines())):
        if event == "[DONE]":
            joiner.done = True
        else:
            joiner.add(json.loads(event))
    streamed = joiner.whole()
    plain = server.http.post(CHAT, json=body)
    assert streamed["choices"][0]["finish_reason"] == "stop"
    assert plain.headers["x-samebits-cache"] == "hit"
    assert plain.json()["choices"][0]["message"]["content"] == streamed["choices"][0]["message"]["content"]
    fresh = server.http.post(CHAT, json=body, headers={"x-samebits-cache": "bypass"}).json()
    assert fresh["choices"][0]["message"].keys() == plain.json()["choices"][0]["message"].keys()
    assert fresh["usage"].keys() == plain.json()["usage"].keys()
    assert plain.json()["samebits"]["fingerprint"] == fresh["system_fingerprint"]


def test_the_order_of_properties_is_the_order_of_the_answer(server: Live) -> None:
    names = ["zulu_note", "alpha_note", "mike_note"]
    for order in (names, sorted(names)):
        properties = {name: {"enum": ["x", "y"]} for name in order}
        schema = {"type": "object", "properties": properties, "required": order, "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        answer = server.http.post(
            CHAT, json=ask("Notes.", response_format=form, max_tokens=100), timeout=PATIENCE_S
        ).json()
        assert list(json.loads(answer["choices"][0]["message"]["content"])) == order
        assert answer["samebits"]["gateway"]["valid"] is True


def test_a_text_that_is_not_valid_is_no_answer(server: Live) -> None:
    headers = {"x-samebits-policy": "kind"}
    response = server.http.post(CHAT, json=ask("Tell a long story.", max_tokens=30), headers=headers)
    assert response.status_code == 422
    assert "cut short" in response.json()["error"]["message"]


def is_busy(address: str) -> bool:
    return any(slot["is_processing"] for slot in httpx.get(f"{address}/slots", timeout=PATIENCE_S).json())


def test_a_client_that_goes_away_frees_the_slot(server: Live, address: str) -> None:
    """Of a stream: this server does not always look whether its client is there before a plain answer is complete."""

    def busy() -> bool:
        return is_busy(address)

    body = ask("A story.", max_tokens=1500, ignore_eos=True, stream=True)
    with server.http.stream("POST", CHAT, json=body) as response:
        lines = itertools.islice(response.iter_lines(), 200)
        assert any(busy() for _ in lines), "not exercised: no slot works while the answer comes"
    wait_until(lambda: not busy(), "the slot outlives its client")


def test_a_plain_request_whose_client_goes_away_leaves_no_connection(server: Live, address: str) -> None:
    """Whatever the upstream does about it: what we hold open would otherwise grow with each impatient client."""

    def held() -> int:
        own = psutil.Process().net_connections("tcp")
        return sum(c.status == "ESTABLISHED" and bool(c.raddr) and c.raddr.port == port for c in own)

    port = urlsplit(address).port
    wait_until(lambda: held() == 0)  # idle ones of earlier tests are closed after a while
    body = json.dumps(ask("A story.", max_tokens=1500, ignore_eos=True)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.http.base_url.port)) as client:
        client.sendall(head.encode() + body)
        wait_until(lambda: held() == 1 and is_busy(address))
        assert server.http.get("/health").status_code == 200, "the server has had time to look after everybody"
        assert held() == 1, "the control: while somebody waits it stays open"
    wait_until(lambda: held() == 0)
