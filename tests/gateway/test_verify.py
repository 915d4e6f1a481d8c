"""What is known of an upstream's mode: asked at the start and again when it was lost, and claimed while it is known."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from aiohttp import web
from stub import Stub, chat
from tests.gateway.conftest import ask
from vllm_shapes import SERVER_INFO

from samebits.errors import InputError
from samebits.gateway import verify
from waiting import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
ON = SERVER_INFO | {"vllm_env": {"VLLM_BATCH_INVARIANT": True}}
OFF = SERVER_INFO | {"vllm_env": {"VLLM_BATCH_INVARIANT": False}}
BATCH = {"api": "vllm", "level": "batch", "attempts": 1}


@pytest.fixture(autouse=True)
def pages(upstream: Stub) -> None:
    upstream.pages["/server_info"] = ON


def listed(server: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get("/v1/models/m").json()["samebits"]
    return found


def verified(server: Any) -> bool | None:
    said: bool | None = listed(server)["level_verified"]
    return said


def block(server: Any, content: str, **body: Any) -> dict[str, Any]:
    response = server.post(CHAT, **ask(content, **body))
    assert response.status_code == 200, response.text
    said: dict[str, Any] = response.json()["samebits"]
    return said


def modes(server: Any) -> dict[str, float]:
    lines = server.http.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("samebits_upstream_mode{")]
    return {line.split('state="')[1].split('"')[0]: float(line.rpartition(" ")[2]) for line in found}


def lose(server: Any, upstream: Stub) -> None:
    upstream.lost = True
    assert server.post(CHAT, **ask("anything")).status_code == 502
    upstream.lost = False


def test_one_that_was_lost_is_asked_again_and_claims_nothing_before(
    serve: Any, upstream: Stub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "ASK_S", 2 * PATIENCE_S)
    server = serve(m=BATCH)
    assert (block(server, "a")["gateway"]["level_verified"], upstream.looked) == (True, 1)
    upstream.silent = True
    lose(server, upstream)
    assert verified(server) is None
    assert modes(server) == {"confirmed": 0, "denied": 0, "unknown": 1}
    began = time.monotonic()
    assert block(server, "b")["gateway"]["level_verified"] is None
    assert time.monotonic() - began < PATIENCE_S, "no request waits for what the server says of itself"
    upstream.silent = False
    wait_until(lambda: verified(server) is True)
    assert modes(server) == {"confirmed": 1, "denied": 0, "unknown": 0}
    assert block(server, "c")["gateway"]["level_verified"] is True
    assert block(server, "b")["gateway"]["cache"] == "miss", "an answer of which nothing was known is not kept"
    assert block(server, "a")["gateway"] | {"cache": "hit", "level_verified": True} == block(server, "a")["gateway"]
    said = [record.getMessage() for record in caplog.records if record.name == verify.__name__]
    assert [text.split(";")[0] for text in said] == [
        "m: it was lost",
        "m: it says that it runs in its deterministic mode",
    ]


def test_one_that_comes_back_without_its_mode_no_longer_gives_its_level(
    serve: Any, upstream: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(m=BATCH, policies={"batches": {"level": "batch"}, "told": {"level": "batch", "unmet": "announce"}})
    assert block(server, "a", determinism="batch")["level"] == "batch", "before"
    upstream.pages["/server_info"] = OFF
    lose(server, upstream)
    block(server, "b")  # it answers again
    wait_until(lambda: verified(server) is False)
    assert listed(server)["level"] == "best-effort"
    assert modes(server) == {"confirmed": 0, "denied": 1, "unknown": 0}
    assert caplog.messages[-1].endswith("its level is no longer batch")
    said = block(server, "c")
    assert (said["level"], said["gateway"]["level_verified"]) == ("best-effort", False)
    assert block(server, "a")["gateway"]["cache"] == "miss", "what it computed in its mode is another answer"

    def under(policy: str) -> Any:
        return server.http.post(CHAT, json=ask("d"), headers={"x-samebits-policy": policy})

    for refused in (server.post(CHAT, **ask("c", determinism="batch")), under("batches")):
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "determinism"
    assert under("told").json()["samebits"]["warnings"] == ["the level batch was asked for; m gives best-effort"]
    upstream.pages["/server_info"] = ON
    lose(server, upstream)
    wait_until(lambda: verified(server) is True)
    assert block(server, "e", determinism="batch")["level"] == "batch"


@pytest.mark.parametrize("insists", [False, True])
def test_an_answer_under_way_when_the_mode_is_denied(serve: Any, upstream: Stub, insists: bool) -> None:
    server = serve(m=BATCH)
    found: list[Any] = []
    body = ask("slow", **({"determinism": "batch"} if insists else {}))
    upstream.held = True
    thread = threading.Thread(target=lambda: found.append(server.post(CHAT, **body)))
    thread.start()
    wait_until(lambda: upstream.open == 1)
    upstream.pages["/server_info"] = OFF
    server.server.service.gateway.routes["m"].backend.when_lost()
    wait_until(lambda: verified(server) is False)
    upstream.held = False
    thread.join(PATIENCE_S)
    [response] = found
    if insists:
        assert (response.status_code, response.json()["error"]["param"]) == (400, "determinism")
    else:
        assert response.json()["samebits"]["level"] == "best-effort"
        assert response.json()["samebits"]["gateway"]["level_verified"] is False
        assert block(server, "slow")["gateway"]["cache"] == "miss", "it was not kept"
    # Negative control: where nothing changes, the same request is answered at its level.
    upstream.pages["/server_info"] = ON
    server.server.service.gateway.routes["m"].backend.when_lost()
    wait_until(lambda: verified(server) is True)
    assert block(server, "slow again", determinism="batch")["level"] == "batch"


def test_what_is_heard_while_it_is_lost_again_counts_for_nothing(
    serve: Any, upstream: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    """The description may be of the process before."""
    server = serve(m=BATCH)
    backend = server.server.service.gateway.routes["m"].backend
    upstream.silent = True
    backend.when_lost()
    wait_until(lambda: upstream.looked == 2)
    backend.when_lost()
    upstream.pages["/server_info"] = OFF
    looked = upstream.looked
    upstream.silent = False
    wait_until(lambda: upstream.looked > looked)
    wait_until(lambda: verified(server) is not None)
    assert verified(server) is False
    assert not any("says that it runs" in said for said in caplog.messages)


def test_one_that_is_not_up_at_the_start_is_asked_until_it_is(
    serve: Any, upstream: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "LOST_S", 0.02)
    upstream.lost = True
    server = serve(m=BATCH)
    wait_until(lambda: upstream.looked > 3)
    assert verified(server) is None
    upstream.lost = False
    wait_until(lambda: verified(server) is True)


def test_one_that_was_started_anew_unseen_is_found_out(
    serve: Any, upstream: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "AGAIN_S", 0.02)
    server = serve(m=BATCH)
    wait_until(lambda: upstream.looked > 3)
    assert verified(server) is True
    upstream.pages["/server_info"] = OFF
    wait_until(lambda: verified(server) is False)
    upstream.lost = True
    wait_until(lambda: verified(server) is None)


def test_what_was_kept_of_one_that_was_started_anew_unseen_is_not_given_again(serve: Any, upstream: Stub) -> None:
    server = serve(m=BATCH)
    watch = server.server.service.gateway.routes["m"].backend.when_heard.__self__

    def look(page: Any) -> None:
        """As after a minute."""
        upstream.pages["/server_info"], looked = page, upstream.looked
        watch._woken.set()
        wait_until(lambda: verified(server) is (page is ON) and upstream.looked > looked)

    block(server, "a")
    look(ON)
    assert block(server, "a")["gateway"]["cache"] == "hit", "negative control: nothing changed"
    upstream.pages["/server_info"] = OFF
    assert block(server, "b")["gateway"]["level_verified"] is True, "nobody knows yet"
    look(OFF)
    look(ON)
    for content in "ab":
        assert block(server, content)["gateway"]["cache"] == "miss"
        assert block(server, content)["gateway"] | {"cache": "hit"} == block(server, content)["gateway"]


@pytest.mark.parametrize("status", [500, 503])
def test_a_proxy_that_finds_nobody_behind_it_says_that_the_server_is_lost(
    serve: Any, upstream: Stub, status: int
) -> None:
    server = serve(m=BATCH)
    upstream.silent = True
    upstream.answer = lambda _: (status, {"error": "no"})
    assert server.post(CHAT, **ask()).status_code == status
    assert verified(server) is (None if status == 503 else True), "500 is of the server itself"


PIECE = 'data: {"choices": [{"index": 0, "delta": {"content": "B"}}]}\n\n'
END = 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (CHAT, PIECE),
        (CHAT, PIECE + END),
        (CHAT, PIECE + END[:30]),
        (CHAT, json.dumps(chat())[:90]),
        (RESPONSES, 'data: {"type": "response.created", "response": {"id": "r"}}\n\n'),
    ],
    ids=["before its end", "before DONE", "within an event", "whole", "responses"],
)
def test_an_answer_without_an_end_that_a_proxy_ends_in_order_says_that_the_server_is_lost(
    serve: Any, upstream: Stub, path: str, text: str
) -> None:
    server = serve(m=BATCH)
    streams = text.startswith("data:")
    upstream.silent = True
    kind = "text/event-stream" if streams else "application/json"
    upstream.answer = lambda _: web.Response(text=text, content_type=kind)
    asked = ask() if path == CHAT else {"model": "m", "input": "Hi"}
    assert '"code":"upstream_malformed"' in server.post(path, **asked, stream=streams).text
    assert verified(server) is None
    upstream.silent = False
    wait_until(lambda: verified(server) is True)
    # Negative control: what is no answer, but whole.
    upstream.silent = True
    upstream.answer = lambda _: web.Response(text='{"choices": NaN}', content_type="application/json")
    assert server.post(CHAT, **ask()).json()["error"]["code"] == "upstream_malformed"
    assert verified(server) is True
    upstream.silent = False


def test_one_that_failed_until_it_is_left_alone_is_lost(serve: Any, upstream: Stub) -> None:
    server = serve(m=BATCH | {"breaker_failures": 2, "breaker_seconds": 0.05})
    upstream.silent = True
    upstream.answer = lambda _: (500, {"error": "no"})
    server.post(CHAT, **ask())
    assert verified(server) is True
    server.post(CHAT, **ask())
    assert verified(server) is None
    upstream.silent = False
    wait_until(lambda: verified(server) is True)


def test_what_a_server_says_of_itself_is_read_to_its_end(serve: Any, upstream: Stub) -> None:
    """It comes in as many pieces as the network likes; half of it would say nothing."""
    upstream.pages["/server_info"] = {"environment": "x" * 500_000} | OFF
    with pytest.raises(InputError, match="deterministic mode"):
        serve(m=BATCH)
    upstream.pages["/server_info"] = {"environment": "x" * 500_000} | ON
    assert verified(serve(m=BATCH)) is True


def test_who_declares_nothing_that_needs_a_mode_is_not_asked(serve: Any, upstream: Stub) -> None:
    server = serve(m={"api": "vllm", "level": "best-effort", "attempts": 1})
    lose(server, upstream)
    upstream.answer = lambda _: chat()
    assert block(server, "b")["gateway"]["level_verified"] is None
    assert upstream.looked == 0
