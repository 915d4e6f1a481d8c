"""An upstream behind the server: bodies, streams, errors, retries, deadlines, clients that go away."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from live import joined, sse_data
from stub import Stub, chat
from test_leaving import FOREVER, asking

from samebits.errors import InputError
from waiting import wait_until

CHAT = "/v1/chat/completions"


def ask(content: str = "Hi", **body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], "temperature": 0} | body


def stream(server: Any, body: dict[str, Any], **headers: str) -> tuple[list[dict[str, Any]], httpx.Headers]:
    with server.http.stream("POST", CHAT, json=body | {"stream": True}, headers=headers) as response:
        assert response.status_code == 200, response.read()
        events = list(sse_data(response.iter_lines()))
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]], response.headers


def test_the_body_is_forwarded_with_its_order_and_unknown_fields(serve: Any, upstream: Stub, monkeypatch: Any) -> None:
    monkeypatch.setenv("STUB_KEY", "sk-of-the-upstream")
    server = serve(m={"api_key_env": "STUB_KEY", "model": "their-name"})
    properties = {"zulu_note": {"type": "string"}, "alpha_note": {"type": "string"}, "mike_note": {"type": "string"}}
    schema = {"type": "object", "properties": properties}
    sent = ask(
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
        zz_unknown={"b": 1, "a": 2},
        num_ctx=8192,
    )
    answer = server.post(CHAT, **sent).json()
    got = upstream.asked[0]
    assert list(got.body) == list(sent)
    assert got.body == sent | {"model": "their-name"}
    assert json.dumps(got.body | {"model": "m"}) == json.dumps(sent)
    assert got.headers["Authorization"] == "Bearer sk-of-the-upstream"
    assert answer["choices"][0]["message"]["content"] == "Blue."
    assert list(answer)[:4] == ["id", "object", "created", "model"]


def test_the_proxy_of_the_environment_is_used_without_a_scheme_and_with_a_user(
    serve: Any, upstream: Stub, monkeypatch: Any
) -> None:
    monkeypatch.setenv("http_proxy", f"me:p%40ss@{urlsplit(upstream.url).netloc}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    route = {"base_url": "http://models.test:8000/v1", "attempts": 1}
    assert serve(m=route).post(CHAT, **ask()).status_code == 200
    got = upstream.asked[0].headers
    assert got["Host"] == "models.test:8000"
    assert got["Proxy-Authorization"] == "Basic " + b64encode(b"me:p@ss").decode()
    monkeypatch.setenv("no_proxy", "127.0.0.1,models.test:8000")
    assert serve(m=route).post(CHAT, **ask()).status_code == 502, "the exception, with its port: nobody is there"
    assert upstream.calls == 1


def test_the_block_says_what_is_promised_and_by_whom(serve: Any, upstream: Stub) -> None:
    server = serve(m={"level": "run"})
    answer = server.post(CHAT, **ask(seed=5)).json()
    block = answer["samebits"]
    assert (block["level"], block["fingerprint"], block["seed"]) == ("run", "fp-1", 5)
    assert block["params"]["seed"] == {"value": 5, "origin": "request"}
    assert block["gateway"]["upstream_id"] == "upstream-1"
    assert block["gateway"]["model"] == "m-1"
    assert block["gateway"]["level_verified"] is None
    assert answer["id"] != "upstream-1"
    assert answer["system_fingerprint"] == "fp-1"
    for asked, status in (("none", 200), ("run", 200), ("batch", 400), ("total", 400)):
        response = server.post(CHAT, **ask(determinism=asked))
        assert response.status_code == status
        assert "determinism" not in upstream.asked[-1].body
    assert response.json()["error"]["param"] == "determinism"


def test_an_error_is_read_to_its_end(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: (400, {"error": {"message": "x" * 500_000, "code": "too_long"}})
    said = serve().post(CHAT, **ask("a")).json()["error"]
    assert (said["code"], len(said["message"])) == ("too_long", 500_000)


def test_a_fingerprint_is_never_null(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: chat(system_fingerprint=None)
    unknown, declared = serve(), serve(m={"fingerprint": "fp-own"})
    for body in (ask("a"), ask("b", stream=True)):
        response = unknown.post(CHAT, **body)
        assert '"system_fingerprint"' not in response.text
        text = declared.post(CHAT, **body).text
        assert '"system_fingerprint":"fp-own"' in text
        assert '"system_fingerprint":null' not in text


def test_a_stream_gives_what_a_plain_answer_gives(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda asked: chat("A longer text, in pieces.")
    server = serve()
    plain = server.post(CHAT, **ask("x")).json()
    bypass = {"x-samebits-cache": "bypass"}
    pieces, headers = stream(server, ask("x"), **bypass)
    assert headers["x-samebits-cache"] == "bypass"
    assert len(pieces) > 5
    assert all("usage" not in piece for piece in pieces), "nobody asked for it"
    assert len({piece["id"] for piece in pieces}) == 1
    whole = joined(pieces)
    assert whole["choices"][0]["message"]["content"] == plain["choices"][0]["message"]["content"]
    assert "samebits" in pieces[-1]
    assert whole["samebits"]["gateway"] | {"cache": None} == plain["samebits"]["gateway"] | {"cache": None}
    pieces, _ = stream(server, ask("x", stream_options={"include_usage": True}), **bypass)
    assert pieces[-1]["choices"] == []
    assert pieces[-1]["usage"] == plain["usage"]


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_passed_on_at_once(serve: Any, upstream: Stub, status: int) -> None:
    upstream.answer = lambda _: (status, {"error": {"message": "no such thing", "param": "top_p"}})
    response = serve().post(CHAT, **ask())
    assert response.status_code == status
    error = response.json()["error"]
    assert error.keys() >= {"message", "type", "param", "code"}
    assert (error["message"], error["param"]) == ("no such thing", "top_p")
    assert upstream.calls == 1


def fails_then_answers(times: int, failure: Any) -> Any:
    left = iter([failure] * times)
    return lambda _: next(left, None) or chat()


@pytest.mark.parametrize("failure", [(429, {}), (500, {"error": "x"}), (503, {"detail": "y"}), ConnectionResetError()])
@pytest.mark.parametrize("streams", [False, True])
def test_what_passes_is_sent_again(serve: Any, upstream: Stub, failure: Any, streams: bool) -> None:
    upstream.answer = fails_then_answers(1, failure)
    server = serve()
    if streams:
        assert joined(stream(server, ask())[0])["choices"][0]["message"]["content"] == "Blue."
    else:
        assert server.post(CHAT, **ask()).status_code == 200
    assert upstream.calls == 2


def test_what_does_not_pass_ends_with_the_upstreams_own_error(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: (503, {"error": {"message": "overloaded", "code": "busy"}})
    response = serve(m={"attempts": 2}).post(CHAT, **ask())
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "busy"
    assert upstream.calls == 2


def test_an_error_is_never_turned_into_an_answer(serve: Any, upstream: Stub) -> None:
    server = serve()
    broken: list[tuple[Any, int]] = [
        ({"error": {"message": "quota"}}, 502),
        (chat() | {"choices": []}, 502),
        ({"hello": 1}, 502),
        ([], 502),
    ]
    for value, status in broken:
        upstream.answer = lambda _, value=value: value
        response = server.post(CHAT, **ask())
        assert response.status_code == status, value
    upstream.answer = lambda _: [{"error": {"message": "quota"}}, b"[DONE]"]
    assert server.post(CHAT, **ask(stream=True)).status_code == 502
    upstream.answer = lambda _: chat()
    good = server.post(CHAT, **ask())
    assert good.status_code == 200
    assert good.headers["x-samebits-cache"] == "miss", "an error was kept"


def test_a_stream_that_breaks_off_ends_with_an_error(serve: Any, upstream: Stub) -> None:
    piece = {"id": "1", "choices": [{"index": 0, "delta": {"content": "Bl"}, "finish_reason": None}]}
    server = serve()
    for ending in ([], [b"no json"], [{"error": {"message": "died"}}], [b"[DONE]"]):
        upstream.answer = lambda _, ending=ending: [piece, *ending]
        text = server.post(CHAT, **ask(stream=True)).text
        events = list(sse_data(iter(text.splitlines())))
        assert "error" in json.loads(events[-1]), ending
    assert len(server.service.gateway.cache) == 0


def test_a_deadline(serve: Any, upstream: Stub) -> None:
    upstream.delay = FOREVER
    server = serve(m={"timeout": 2.0})  # time enough for a request to come there, also where there is much to do
    response = server.post(CHAT, **ask())
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "upstream_timeout"
    assert upstream.calls == 1, "what may have been carried out is not sent again"
    text = server.post(CHAT, **ask(stream=True)).text
    assert "upstream_timeout" in text
    assert "[DONE]" not in text
    wait_until(lambda: upstream.open == 0)


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_goes_away_frees_the_upstream(serve: Any, upstream: Stub, streams: bool) -> None:
    upstream.stalled, upstream.answer = True, lambda _: chat("A text.")
    server = serve()
    if streams:
        with server.http.stream("POST", CHAT, json=ask(stream=True)) as response:
            assert next(response.iter_lines()).startswith("data:")
    else:
        client = asking(server)
        wait_until(lambda: upstream.open == 1)
        client.close()
    wait_until(lambda: upstream.gone == 1 and upstream.open == 0)
    assert len(server.service.gateway.cache) == 0
    upstream.stalled = False
    assert server.post(CHAT, **ask()).status_code == 200


def test_what_is_sent_again_is_logged_without_what_the_upstream_says(serve: Any, upstream: Stub, caplog: Any) -> None:
    answers: Any = iter([(503, {"error": {"message": "cannot do: my secret question"}}), chat()])
    upstream.answer = lambda _: next(answers)
    assert serve().post(CHAT, **ask("my secret question")).status_code == 200
    said = [record.getMessage() for record in caplog.records if record.name == "samebits.gateway.upstream"]
    assert said == ["m: attempt 2, after HTTP 503"]
    assert "secret" not in caplog.text


def test_an_upstream_that_keeps_failing_is_left_alone(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: (500, {})
    server = serve(m={"attempts": 1, "breaker_failures": 2, "breaker_seconds": FOREVER})
    codes = [server.post(CHAT, **ask()).json()["error"]["code"] for _ in range(4)]
    assert codes == ["upstream_500"] * 2 + ["upstream_resting"] * 2
    assert upstream.calls == 2
    upstream.answer = lambda _: chat()
    server.service.gateway.routes["m"].backend.breaker._seconds = 0.0  # its time is over
    assert server.post(CHAT, **ask()).status_code == 200


def test_another_route_steps_in_only_with_the_same_fingerprint(serve: Any, upstream: Stub) -> None:
    nobody = "http://127.0.0.1:9/v1"
    models = {
        "same": {"engine": "upstream", "base_url": nobody, "attempts": 1, "fingerprint": "f", "failover": ["good"]},
        "other": {"engine": "upstream", "base_url": nobody, "attempts": 1, "fingerprint": "g", "failover": ["good"]},
        "good": {"engine": "upstream", "base_url": upstream.url, "fingerprint": "f"},
    }
    upstream.answer = lambda _: chat(system_fingerprint="f")
    server = serve(models=models)
    answer = server.post(CHAT, **ask(model="same")).json()
    assert answer["samebits"]["gateway"]["route"] == "good"
    assert answer["samebits"]["warnings"] == ["good answered in place of same"]
    assert server.post(CHAT, **ask(model="other")).json()["error"]["code"] == "upstream_unreachable"
    response = server.http.post(CHAT, json=ask(model="other"), headers={"x-samebits-policy": "balanced"})
    assert response.json()["samebits"]["gateway"]["route"] == "good"


def test_a_route_that_steps_in_is_not_said_to_give_more_than_it_does(serve: Any, upstream: Stub) -> None:
    """vLLM states the same fingerprint whether its batch-invariant mode is on or not."""
    upstream.answer = lambda _: chat(system_fingerprint="f")
    nobody = {"engine": "upstream", "base_url": "http://127.0.0.1:9/v1", "attempts": 1, "fingerprint": "f"}
    models = {
        "strict": nobody | {"level": "batch", "failover": ["fast"]},
        "fast": {"engine": "upstream", "base_url": upstream.url, "fingerprint": "f"},
    }
    server = serve(models=models, policies={"mild": {"level": "batch", "unmet": "announce"}})
    answer = server.post(CHAT, **ask(model="strict")).json()["samebits"]
    assert (answer["gateway"]["route"], answer["level"]) == ("fast", "best-effort")
    # Whoever asked for the level has no answer rather than a weaker one, or is told.
    refused = server.post(CHAT, **ask(model="strict", determinism="batch"))
    assert refused.json()["error"]["code"] == "upstream_unreachable"
    response = server.http.post(CHAT, json=ask(model="strict"), headers={"x-samebits-policy": "mild"})
    told = response.json()["samebits"]
    assert told["level"] == "best-effort"
    assert "the level batch was asked for; fast gives best-effort" in told["warnings"]


def test_models_are_listed_and_unknown_ones_refused(serve: Any) -> None:
    server = serve(m={"level": "batch"})
    listed = server.http.get("/v1/models").json()["data"]
    assert [(m["id"], m["samebits"]["level"], m["samebits"]["level_verified"]) for m in listed] == [
        ("m", "batch", None)
    ]
    assert server.http.get("/v1/models/m").status_code == 200
    assert server.http.get("/v1/models/n").status_code == 404
    assert server.post(CHAT, **ask(model="n")).json()["error"]["code"] == "model_not_found"
    assert server.post("/generate", text="a").status_code == 404
    assert server.post("/tokenize", model="m", prompt="a").status_code == 404
    for body, status in ((b'{"model":"m","model":"m"}', 400), (b"{", 400), (b'{"model":"m","top_p":NaN}', 400)):
        response = server.http.post(CHAT, content=body, headers={"content-type": "application/json"})
        assert response.status_code == status, body
    assert server.http.post(CHAT, content=json.dumps(ask())).status_code == 415


@pytest.mark.parametrize(
    ("api", "page", "good", "bad"),
    [
        ("sglang", "/server_info", {"enable_deterministic_inference": True}, {"enable_deterministic_inference": False}),
        (
            "vllm",
            "/server_info",
            {"vllm_env": {"VLLM_BATCH_INVARIANT": True}},
            {"vllm_env": {"VLLM_BATCH_INVARIANT": "0"}},
        ),
    ],
)
def test_a_declared_mode_is_verified_at_the_start(
    serve: Any, upstream: Stub, api: str, page: str, good: Any, bad: Any
) -> None:
    keys = {"api": api, "level": "batch"}
    upstream.pages[page] = good
    assert serve(m=keys).post(CHAT, **ask()).json()["samebits"]["gateway"]["level_verified"] is True
    upstream.pages.clear()
    assert serve(m=keys).post(CHAT, **ask()).json()["samebits"]["gateway"]["level_verified"] is None
    upstream.pages[page] = bad
    with pytest.raises(InputError) as caught:
        serve(m=keys)
    assert caught.value.field == "models.m.level"
    assert serve(m={"api": api, "level": "run"}), "a weaker level needs no mode"


def test_the_metrics_tell_of_the_gateway(serve: Any, upstream: Stub) -> None:
    server = serve()
    for content in ("a", "a", "b"):
        server.post(CHAT, **ask(content))
    lines = server.http.get("/metrics").text.splitlines()
    assert 'samebits_cache_events_total{event="hits"} 1.0' in lines
    assert "samebits_cache_entries 2.0" in lines
    assert 'samebits_upstream_requests_total{model="m"} 2.0' in lines
    assert 'samebits_upstream_resting{model="m"} 0.0' in lines
