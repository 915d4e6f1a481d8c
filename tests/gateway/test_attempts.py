"""Validate and retry: bounded, with the error fed back, the same way every time."""

from __future__ import annotations

from typing import Any

import pytest
from stub import Asked, Stub, chat

CHAT = "/v1/chat/completions"
SCHEMA = {"type": "object", "properties": {"kind": {"enum": ["A", "B"]}}, "required": ["kind"]}
POLICIES = {
    "valid": {"schema": SCHEMA, "retries": 3},
    "once": {"schema": SCHEMA},
    "pattern": {"regex": "[a-z]+", "retries": 1},
    "shouted": {"check": "checks_for_tests:is_shouted", "retries": 1},
    "raising": {"check": "checks_for_tests:raises"},
    "own": {"retries": 2},
}
GOOD, BAD = '{"kind": "A"}', '{"kind": "Q9"}'


def post(server: Any, policy: str = "valid", **body: Any) -> Any:
    given = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "seed": 5} | body
    return server.http.post(CHAT, json=given, headers={"x-samebits-policy": policy})


def test_always_wrong_and_greedy(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: chat(BAD)
    server = serve(policies=POLICIES)
    response = post(server)
    assert response.status_code == 422
    body = response.json()
    assert body["error"]["code"] == "answer_not_valid"
    attempts = body["samebits"]["attempts"]
    assert [a["attempt"] for a in attempts] == [1, 2], "the third request would be the second one again"
    assert attempts[0]["texts"] == [BAD]
    assert "kind" in attempts[0]["problem"]
    assert upstream.calls == 2
    assert attempts == post(server).json()["samebits"]["attempts"], "the same inputs, the same attempts"


def test_always_wrong_and_sampled(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: chat(BAD)
    server = serve(policies=POLICIES)
    attempts = post(server, temperature=1).json()["samebits"]["attempts"]
    assert len(attempts) == upstream.calls == 4
    seeds = [a["seed"] for a in attempts]
    assert seeds[0] == 5
    assert len(set(seeds)) == 4
    assert seeds == [a.body["seed"] for a in upstream.asked]
    assert [len(a.body["messages"]) for a in upstream.asked] == [1, 3, 3, 3], "the prompt grows without end"
    assert seeds == [a["seed"] for a in post(server, temperature=1).json()["samebits"]["attempts"]]
    assert seeds[1:] != [a["seed"] for a in post(server, temperature=1, seed=6).json()["samebits"]["attempts"]][1:]


def test_the_error_is_fed_back(serve: Any, upstream: Stub) -> None:
    def answer(asked: Asked) -> Any:
        return chat(GOOD if "not valid" in asked.last and "Q9" in asked.last else BAD)

    upstream.answer = answer
    server = serve(policies=POLICIES)
    answer_2 = post(server)
    block = answer_2.json()["samebits"]
    assert answer_2.json()["choices"][0]["message"]["content"] == GOOD
    assert (block["gateway"]["attempt"], block["gateway"]["valid"], upstream.calls) == (2, True, 2)
    assert upstream.asked[1].body["messages"][1] == {"role": "assistant", "content": BAD}
    again = post(server)
    assert again.headers["x-samebits-cache"] == "hit"
    assert again.json()["samebits"]["gateway"]["attempt"] == 2
    streamed = post(server, stream=True, messages=[{"role": "user", "content": "Another"}])
    assert "Q9" not in streamed.text, "a piece of an answer that is not valid was sent"


def test_a_cut_answer_stops_at_once(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: chat('{"kind": ', reason="length")
    response = post(serve(policies=POLICIES), temperature=1)
    assert (response.status_code, upstream.calls) == (422, 1)
    assert "cut short" in response.json()["error"]["message"]


def test_other_judges(serve: Any, upstream: Stub) -> None:
    server = serve(policies=POLICIES)
    for policy, text, good in (
        ("pattern", "blue", True),
        ("pattern", "Blue", False),
        ("shouted", "BLUE", True),
        ("shouted", "Blue", False),
        ("raising", "lue", True),
        ("raising", "blue", False),
        ("once", GOOD, True),
        ("once", BAD, False),
        ("once", "```json\n" + GOOD + "\n```", False),
    ):
        upstream.answer = lambda _, text=text: chat(text)
        response = post(server, policy, messages=[{"role": "user", "content": text}])
        assert response.status_code == (200 if good else 422), (policy, text)


@pytest.mark.parametrize("retries", [True, False])
def test_the_requests_own_schema(serve: Any, upstream: Stub, retries: bool) -> None:
    upstream.answer = lambda _: chat(BAD)
    server = serve(policies=POLICIES)
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    response = post(server, "own" if retries else "plain", response_format=form, temperature=1)
    assert response.status_code == (422 if retries else 200)
    if not retries:
        assert response.json()["samebits"]["gateway"]["valid"] is False
        assert response.json()["choices"][0]["message"]["content"] == BAD, "it is handed out as it came"
    assert upstream.calls == (3 if retries else 1)
