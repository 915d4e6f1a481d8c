"""The cache: what is kept, for how long, and one computation for all who ask the same."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import joined, sse_data
from stub import Stub, chat

from samebits.gateway.cache import OVERHEAD, Cache
from samebits.gateway.settings import CacheConfig
from samebits.ledger import Ledger
from waiting import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"
HEADER = "x-samebits-cache"


def ask(content: str = "Hi", **body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], "temperature": 0} | body


def steady(answer: dict[str, Any]) -> dict[str, Any]:
    block = answer["samebits"]
    gateway = {name: value for name, value in block["gateway"].items() if name != "cache"}
    return {name: value for name, value in answer.items() if name != "id"} | {
        "samebits": block | {"gateway": gateway, "receipt_id": None}
    }


# ---- alone -----------------------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_age_is_measured_by_a_clock_that_only_goes_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    cache = Cache(CacheConfig(ttl=60), clock)
    cache.put("a", "t", {"x": 1})
    wall = time.time()
    monkeypatch.setattr(time, "time", lambda: wall - 3600)
    clock.now = 61
    assert cache.get("a") is None
    cache.put("a", "t", {"x": 1})
    monkeypatch.setattr(time, "time", lambda: wall + 3600)
    clock.now = 62
    entry = cache.get("a")
    assert entry is not None
    assert entry.read() == {"x": 1}
    assert cache.peek("a") == 1
    assert cache.counts.expired == 1


def test_the_least_recently_used_goes_first() -> None:
    cache = Cache(CacheConfig(bytes=3 * (OVERHEAD + 20)))
    for name in "abc":
        assert cache.put(name, "t", {"x": "123456"})
    assert cache.get("a") is not None
    cache.put("d", "t", {"x": "123456"})
    assert [name for name in "abcd" if cache.peek(name) is not None] == ["a", "c", "d"]
    assert not cache.put("e", "t", {"x": "1" * 4000}), "it does not fit at all"
    assert len(cache) == 3
    few = Cache(CacheConfig(entries=2))
    for name in "abc":
        few.put(name, "t", {})
    assert len(few) == 2
    few.put("c", "u", {"longer": "one"})
    assert few.bytes == sum(entry.size for entry in few._entries.values())
    assert few.clear("u") == 1
    assert few.count("t") == 1


# ---- behind a server -------------------------------------------------------------------------------------------------


def test_a_hit_has_the_fields_of_a_miss_whole_and_in_pieces(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: chat("A text.", service_tier="default")
    server = serve()
    first = server.post(CHAT, **ask())
    second = server.post(CHAT, **ask(user="another"))
    assert [r.headers[HEADER] for r in (first, second)] == ["miss", "hit"]
    assert first.json()["id"] != second.json()["id"]
    assert steady(first.json()) == steady(second.json())
    options = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = server.post(CHAT, **ask(**options))
    assert streamed.headers[HEADER] == "hit"
    events = list(sse_data(iter(streamed.text.splitlines())))
    assert events.pop() == "[DONE]"
    assert steady(joined([json.loads(event) for event in events])) == steady(first.json())
    assert upstream.calls == 1


def test_what_was_streamed_is_a_hit_for_a_plain_request(serve: Any, upstream: Stub) -> None:
    server = serve()
    text = server.post(CHAT, **ask(stream=True)).text
    plain = server.post(CHAT, **ask())
    assert plain.headers[HEADER] == "hit"
    events = [json.loads(e) for e in sse_data(iter(text.splitlines())) if e != "[DONE]"]
    assert plain.json()["choices"] == joined(events)["choices"]
    assert plain.json()["usage"] == chat()["usage"]


@pytest.mark.parametrize(
    "value",
    [
        (400, {"error": {"message": "x"}}),
        (429, {}),
        (503, {}),
        {"error": {"message": "x"}},
        chat() | {"choices": []},
        chat(reason="length"),
        chat(reason="content_filter"),
        chat("no json"),
    ],
)
def test_only_complete_and_valid_answers_are_kept(serve: Any, upstream: Stub, value: Any) -> None:
    server = serve(m={"attempts": 1})
    body = ask(response_format={"type": "json_object"})
    upstream.answer = lambda _: value
    first = server.post(CHAT, **body)
    upstream.answer = lambda _: chat('{"a": 1}')
    second = server.post(CHAT, **body)
    assert (second.status_code, second.headers[HEADER], upstream.calls) == (200, "miss", 2)
    if first.status_code == 200 and value["choices"][0]["finish_reason"] == "stop":
        assert first.json()["samebits"]["gateway"]["valid"] is False
        assert first.json()["samebits"]["warnings"]
    assert server.post(CHAT, **body).headers[HEADER] == "hit"


def test_unseeded_sampling_is_kept_only_if_asked(serve: Any, upstream: Stub) -> None:
    server = serve(policies={"all": {"cache": "all"}, "none": {"cache": "off"}})

    def status(policy: str | None = None, **body: Any) -> str:
        headers = {} if policy is None else {"x-samebits-policy": policy}
        found: str = server.http.post(CHAT, json=ask(**body), headers=headers).headers[HEADER]
        return found

    assert [status(temperature=1) for _ in range(2)] == ["bypass"] * 2
    assert [status(temperature=None) for _ in range(2)] == ["bypass"] * 2
    assert [status(temperature=1, seed=3) for _ in range(2)] == ["miss", "hit"]
    assert [status("all", temperature=0.5) for _ in range(2)] == ["miss", "hit"]
    assert [status("none") for _ in range(2)] == ["off"] * 2


def test_a_client_may_pass_it_by_or_refresh_it(serve: Any, upstream: Stub) -> None:
    server = serve()

    def asked(how: str | None) -> httpx.Response:
        response: httpx.Response = server.http.post(CHAT, json=ask(), headers={} if how is None else {HEADER: how})
        return response

    assert [asked(h).headers[HEADER] for h in (None, "bypass", "refresh", None)] == ["miss", "bypass", "refresh", "hit"]
    assert upstream.calls == 3
    assert asked("sometimes").json()["error"]["param"] == HEADER


def test_a_new_fingerprint_or_model_is_another_key(serve: Any, upstream: Stub) -> None:
    server = serve()
    server.post(CHAT, **ask())
    for change in ({"system_fingerprint": "fp-2"}, {"model": "m-2"}):
        assert server.post(CHAT, **ask()).headers[HEADER] == "hit"
        upstream.answer = lambda _, change=change: chat(**change)
        assert server.post(CHAT, **ask("else")).headers[HEADER] == "miss"
        assert server.post(CHAT, **ask()).headers[HEADER] == "miss", "it was kept for another model"
        server.http.delete("/cache")
        server.post(CHAT, **ask())


def together(server: Any, bodies: list[dict[str, Any]], policies: Sequence[str]) -> list[httpx.Response]:
    """The answers to requests that are sent at the same time, each under a policy."""
    headers = [{"x-samebits-policy": name} for name in policies]

    async def all_of_them() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
            asked = zip(bodies, headers, strict=True)
            return await asyncio.gather(*(client.post(CHAT, json=body, headers=header) for body, header in asked))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("streams", [False, True])
def test_identical_requests_are_computed_once(serve: Any, upstream: Stub, streams: bool) -> None:
    answers = at_once(serve(), upstream, [ask(stream=streams)] * 50)
    assert upstream.calls == 1
    assert {a.status_code for a in answers} == {200}
    assert sorted(a.headers[HEADER] for a in answers) == ["miss"] + ["shared"] * 49
    if not streams:
        assert len({a.json()["choices"][0]["message"]["content"] for a in answers}) == 1
        assert len({a.json()["id"] for a in answers}) == 50
    else:
        wholes = [
            joined([json.loads(e) for e in sse_data(iter(a.text.splitlines())) if e != "[DONE]"]) for a in answers
        ]
        assert all(whole["choices"] == wholes[0]["choices"] for whole in wholes)


def at_once(
    server: Any, upstream: Stub, bodies: list[dict[str, Any]], policies: Sequence[str] = (), unshared: int = 0
) -> list[httpx.Response]:
    """``together``, with no answer before all requests wait for one.

    Args:
        unshared: how many of them have no key.
    """
    flights = server.service.gateway._flights._open
    upstream.held = True
    with ThreadPoolExecutor() as pool:
        answers = pool.submit(together, server, bodies, policies or ["plain"] * len(bodies))
        try:
            wait_until(lambda: sum(f._waiting for f in flights.values()) == len(bodies) - unshared)
            wait_until(lambda: upstream.open == len(flights) + unshared)
        finally:
            upstream.held = False
        return answers.result()


TERMS: dict[str, tuple[dict[str, Any], int]] = {
    # What may come out differently is computed for each: calls of the upstream.
    "drift": ({"drift": "ignore"}, 2),
    "failover": ({"failover": "any"}, 2),
    "cache": ({"cache": "off"}, 4),  # without a key each one is computed
    "retries": ({"retries": 2, "regex": ".*"}, 2),
    # What is done with an answer afterwards is done for each, with one computation.
    "kept more": ({"cache": "all"}, 1),
    "receipt": ({"receipt": False}, 1),
    "unmet": ({"unmet": "announce"}, 1),
    "nothing": ({}, 1),
}


@pytest.mark.parametrize("name", TERMS)
def test_an_answer_is_shared_among_those_who_take_it_on_the_same_terms(
    serve: Any, upstream: Stub, tmp_path: Path, name: str
) -> None:
    rules, calls = TERMS[name]
    server = serve(policies={"other": rules}, ledger={"url": f"sqlite:///{tmp_path}/ledger.db"})
    answers = at_once(server, upstream, [ask()] * 6, ["plain", "other"] * 3, unshared=3 if name == "cache" else 0)
    assert {a.status_code for a in answers} == {200}
    assert upstream.calls == calls, name
    for answer, policy in zip(answers, ["plain", "other"] * 3, strict=True):
        block = answer.json()["samebits"]
        assert block["gateway"]["policy"] == policy
        named = block["receipt_id"] is not None
        assert named == (name != "receipt" or policy == "plain")
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.db", readonly=True) as ledger:
        stored = {r.id: json.loads(r.body or b"")["policy"] for r in ledger.records() if r.kind == "answer"}
    assert stored == {a.json()["id"]: policy for a, policy in zip(answers, ["plain", "other"] * 3, strict=True)}


def test_who_refuses_a_model_that_moved_is_not_given_what_others_accept(serve: Any, upstream: Stub) -> None:
    """A shared answer is judged by the terms of each who shares it."""
    server = serve(m={"level": "batch"}, policies={"strict": {"drift": "refuse"}})
    server.post(CHAT, **ask("first"))
    upstream.answer = lambda _: chat(model="m-2")
    answers = at_once(server, upstream, [ask("second")] * 4, ["plain", "strict"] * 2)
    assert [a.status_code for a in answers] == [200, 409] * 2


def test_a_failure_elects_another_leader(serve: Any, upstream: Stub) -> None:
    lock, left = threading.Lock(), [(503, {})]

    def answer(_: Any) -> Any:
        with lock:
            return left.pop() if left else chat()

    upstream.answer = answer
    answers = at_once(serve(m={"attempts": 1}), upstream, [ask()] * 20)
    assert sorted(a.status_code for a in answers) == [200] * 19 + [503]
    assert upstream.calls == 2


def test_a_refusal_is_shared(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: (400, {"error": {"message": "no"}})
    answers = at_once(serve(), upstream, [ask()] * 10)
    assert {a.status_code for a in answers} == {400}
    assert upstream.calls == 1


@pytest.mark.parametrize("streams", [False, True])
def test_followers_outlive_the_leaders_client(serve: Any, upstream: Stub, streams: bool) -> None:
    upstream.stalled = True
    server = serve()
    leader = http.client.HTTPConnection(server.url.removeprefix("http://"))
    leader.request("POST", CHAT, json.dumps(ask(stream=streams)), {"content-type": "application/json"})
    if streams:
        assert leader.getresponse().readline().startswith(b"data:")
    flights = server.service.gateway._flights._open
    wait_until(lambda: len(flights) == 1)
    [flight] = flights.values()
    with ThreadPoolExecutor() as pool:
        follower = pool.submit(lambda: httpx.post(server.url + CHAT, json=ask(), timeout=PATIENCE_S))
        wait_until(lambda: flight._waiting == 2)
        leader.close()
        wait_until(lambda: flight._waiting == 1)
        upstream.stalled = False
        assert follower.result().status_code == 200
        assert follower.result().headers[HEADER] == "shared"
    assert (upstream.calls, upstream.gone) == (1, 0)


def test_tenants_share_nothing(serve: Any, upstream: Stub) -> None:
    server = serve(keys=["ada key-of-ada-1", "bob key-of-bob-1"])
    for key, expected in (("key-of-ada-1", "miss"), ("key-of-bob-1", "miss"), ("key-of-ada-1", "hit")):
        headers = {"authorization": f"Bearer {key}"}
        assert (
            httpx.post(server.url + CHAT, json=ask(), headers=headers, timeout=PATIENCE_S).headers[HEADER] == expected
        )
    bob = {"authorization": "Bearer key-of-bob-1"}
    assert httpx.delete(server.url + "/cache", headers=bob, timeout=PATIENCE_S).json() == {"cleared": 1}
    state = httpx.get(server.url + "/cache", headers=bob, timeout=PATIENCE_S).json()
    assert (state["entries"], state["own_entries"], state["hits"]) == (1, 0, 1)


def test_the_key_of_a_request_can_be_explained(serve: Any, upstream: Stub) -> None:
    server = serve()
    before = server.post("/cache/explain", request=ask()).json()
    assert before["age"] is None
    assert before["form"]["tenant"] == "default"
    server.post(CHAT, **ask())
    after = server.post("/cache/explain", request=ask()).json()
    assert after["form"]["identity"]["resolved"] == "m-1"
    assert after["age"] is not None
    assert server.post("/cache/explain", request=ask(temperature=1)).json()["reason"] == "unseeded"
    assert server.post("/cache/explain", request=ask(model="n")).status_code == 404
    assert upstream.calls == 1
