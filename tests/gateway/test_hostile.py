"""Upstreams that answer with what is none, and policies on every route."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from stub import Stub, chat
from tests.ledger.conftest import make_entry
from tests.ledger.test_replay import record_of

from samebits.gateway.errors import MalformedError
from samebits.gateway.join import Joiner
from samebits.ledger.replay import Recorded

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"


def ask(content: str = "Hi", **body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], "temperature": 0} | body


def raw(text: str, status: int = 200) -> Any:
    return lambda _: web.Response(text=text, status=status, content_type="application/json")


@pytest.mark.parametrize(
    "answer",
    [
        raw("[" * 100_000),
        raw('{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"x":' + "[" * 500 + "]" * 500 + "}"),
        raw('{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"x":NaN}'),
        raw('{"choices":[{"message":{"content":"\\ud800"},"finish_reason":"stop"}]}'),
        raw("", 302),
        raw("", 204),
        lambda _: chat(samebits={"form_sha256": 5}),
        lambda _: chat(samebits={"warnings": 5}),
        lambda _: chat() | {"choices": [{"message": {"content": None, "tool_calls": 5}, "finish_reason": "stop"}]},
    ],
)
def test_what_is_no_answer_is_an_error_of_the_upstream_and_not_kept(serve: Any, upstream: Stub, answer: Any) -> None:
    server = serve()
    upstream.answer = answer
    response = server.post(CHAT, **ask())
    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_malformed")
    upstream.answer = lambda _: chat()
    healthy = server.post(CHAT, **ask())
    assert (healthy.status_code, healthy.headers["x-samebits-cache"]) == (200, "miss")


@pytest.mark.parametrize(
    "choices",
    [5, [5], [{"delta": "x"}], [{"delta": {"tool_calls": [5]}}], [{"delta": {"tool_calls": [{"index": "a"}]}}]],
)
def test_chunks_of_another_form_are_refused(choices: Any) -> None:
    with pytest.raises(MalformedError, match="choices"):
        Joiner().add({"choices": choices})
    Joiner().add({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]})


def test_a_block_of_another_server_than_samebits_proves_nothing(serve: Any, upstream: Stub) -> None:
    digest = "sha256:" + "0" * 64
    said = {"output_tokens_sha256": digest, "seed": 7, "warnings": ["made up"]}
    upstream.answer = lambda _: chat(samebits=said)
    block = serve().post(CHAT, **ask()).json()["samebits"]
    assert {name: block[name] for name in said} == {"output_tokens_sha256": None, "seed": None, "warnings": []}
    server = serve(m={"api": "samebits"})
    block = server.post(CHAT, **ask()).json()["samebits"]
    assert {name: block[name] for name in said} == said, "its digests, and the seed that it drew"
    assert server.post(CHAT, **ask("Ho", seed=3)).json()["samebits"]["seed"] == 3
    for seed in ("7", True, 2**63):
        upstream.answer = lambda _, seed=seed: chat(samebits=said | {"seed": seed})
        assert server.post(CHAT, **ask("Hm")).status_code == 502


def test_a_block_that_comes_before_the_end_of_a_stream_is_nobodys(serve: Any, upstream: Stub) -> None:
    server = serve()
    upstream.answer = lambda _: chat(samebits={"level": "portable", "receipt_id": "made-up"})
    chunks = server.stream(CHAT, **ask())
    assert [chunk["samebits"]["level"] for chunk in chunks if "samebits" in chunk] == ["best-effort"]
    response = {"id": "r", "output": [], "status": "completed", "samebits": {"receipt_id": "made-up"}}
    upstream.answer = lambda _: [
        {"type": f"response.{name}", "response": response} for name in ("created", "completed")
    ]
    text = server.post(RESPONSES, model="m", input="Hi", stream=True).text
    assert "made-up" not in text
    assert text.count('"samebits"') == 1


KEY = "sk-of/the&upstream"
BAD_KEY = {"message": f"bad key {KEY}", "code": KEY}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("escape", ["/", "&", "s"])
def test_an_error_does_not_quote_the_key_however_it_is_spelled(
    serve: Any, upstream: Stub, monkeypatch: pytest.MonkeyPatch, status: int, escape: str
) -> None:
    monkeypatch.setenv("STUB_KEY", KEY)
    text = json.dumps({"error": BAD_KEY}).replace(KEY, KEY.replace(escape, f"\\u{ord(escape):04x}"))
    assert KEY not in text, "not exercised"
    upstream.answer = raw(text, status)
    error = serve(m={"api_key_env": "STUB_KEY", "attempts": 1}).post(CHAT, **ask()).json()["error"]
    assert (error["message"], error["code"]) == ("bad key [key]", "[key]")


@pytest.mark.parametrize(
    ("path", "events"),
    [
        (CHAT, [{"choices": [{"index": 0, "delta": {"content": "B"}}]}, {"error": BAD_KEY}]),
        (CHAT, [{"choices": [{"index": 0, "delta": {"content": "B"}}]}, {"error": f"bad key {KEY}"}]),
        (RESPONSES, [{"type": "response.created", "response": {"id": "r"}}, {"type": "error", **BAD_KEY}]),
        (RESPONSES, [{"type": "response.failed", "response": {"id": "r", "error": BAD_KEY}}]),
    ],
)
def test_an_error_within_a_stream_does_not_quote_the_key(
    serve: Any, upstream: Stub, monkeypatch: pytest.MonkeyPatch, path: str, events: list[Any]
) -> None:
    monkeypatch.setenv("STUB_KEY", KEY)
    upstream.answer = lambda _: events
    asked = ask() if path == CHAT else {"model": "m", "input": "Hi"}
    text = serve(m={"api_key_env": "STUB_KEY"}).post(path, **asked, stream=True).text
    assert "bad key [key]" in text
    assert KEY not in text


def test_an_answer_that_is_not_of_the_pinned_model_is_not_kept(serve: Any, upstream: Stub) -> None:
    server = serve(m={"revision": "m-1"})
    upstream.answer = lambda _: chat(model="m-2")
    assert "moved" in server.post(CHAT, **ask()).json()["samebits"]["warnings"][0]
    upstream.answer = lambda _: chat()
    again = server.post(CHAT, **ask())
    assert (again.headers["x-samebits-cache"], again.json()["model"]) == ("miss", "m-1")
    assert server.post(CHAT, **ask()).headers["x-samebits-cache"] == "hit"


def test_a_policy_that_refuses_an_alias_refuses_its_kept_answer_too(serve: Any, upstream: Stub) -> None:
    server = serve(policies={"strict": {"drift": "refuse"}})
    assert server.post(CHAT, **ask()).json()["model"] == "m-1"
    assert server.post(CHAT, **ask()).headers["x-samebits-cache"] == "hit"
    refused = server.http.post(CHAT, json=ask(), headers={"x-samebits-policy": "strict"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_moved")


def test_a_policy_judges_answers_of_responses_too(serve: Any, upstream: Stub) -> None:
    server = serve(policies={"strict": {"regex": "yes"}})
    strict = {"x-samebits-policy": "strict"}
    for text, status in (("no", 422), ("yes", 200)):
        part = {"type": "message", "content": [{"type": "output_text", "text": text}]}
        upstream.answer = lambda _, part=part: {"id": "resp_1", "status": "completed", "output": [part]}
        response = server.http.post(RESPONSES, json={"model": "m", "input": text}, headers=strict)
        assert response.status_code == status, response.text
    streamed = server.http.post(RESPONSES, json={"model": "m", "input": "a", "stream": True}, headers=strict)
    assert (streamed.status_code, streamed.json()["error"]["param"]) == (400, "stream")


def test_a_replay_has_what_the_policy_forced() -> None:
    forced = {"temperature": {"value": 0.0, "origin": "policy critical"}, "top_p": {"value": 1.0, "origin": "samebits"}}
    request = {"messages": [], "temperature": 0.9, "top_p": 0.5}
    changes = {"temperature": forced["temperature"]}
    sent = Recorded.of(record_of(make_entry(request=request, changes=changes, params=forced, seed=None))).again()
    assert (sent["temperature"], sent["top_p"]) == (0.0, 0.5)
