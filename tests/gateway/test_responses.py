"""Answers of an upstream's /v1/responses: an id for each, and the upstream's own where it is asked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from live import NAME, make_scripted
from stub import Stub

from samebits import LLM
from samebits.cli import _run
from samebits.gateway.ids import MOST_UPSTREAM_ID, new_id, upstream_id
from samebits.gateway.response_events import events_of
from samebits.ledger import Ledger
from samebits.ledger.entry import PUBLIC_ID
from small_model import write_model

PATH = "/v1/responses"


def response(text: str = "Blue.", **others: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    return {"id": "resp_1", "object": "response", "model": "m-1", "status": "completed", "output": [message], **others}


def events(**others: Any) -> list[Any]:
    begun = response(status="in_progress", output=[], **others)
    return [
        {"type": "response.created", "sequence_number": 0, "response": begun},
        {"type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1", "delta": "Blue."},
        {"type": "response.completed", "sequence_number": 2, "response": response(**others)},
    ]


def ids_of(server: Any, **body: Any) -> set[str]:
    """The ids that the answer to a request shows."""
    got = server.http.post(PATH, json={"model": "m", "input": "Hi", "temperature": 0} | body)
    assert got.status_code == 200, got.text
    if not body.get("stream"):
        return {got.json()["id"]}
    data = [json.loads(line.removeprefix("data: ")) for line in got.text.splitlines() if line.startswith("data: ")]
    assert data
    return {event["response"]["id"] for event in data if "response" in event}


@pytest.mark.parametrize("first", [False, True])
def test_every_answer_has_an_id_of_its_own(first: bool, serve: Any, upstream: Stub, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    server = serve(ledger={"url": url})
    upstream.answer = lambda asked: events() if asked.body.get("stream") else response()
    found = [ids_of(server, stream=streams) for streams in (first, False, True, True, False)]
    assert upstream.calls == 1, "the others are hits"
    assert all(len(shown) == 1 for shown in found), "an id changes within an answer"
    shown = [next(iter(ids)) for ids in found]
    assert len(set(shown)) == 5
    assert all(PUBLIC_ID.fullmatch(one) and upstream_id(one) == "resp_1" for one in shown)
    with Ledger.open(url, readonly=True) as ledger:
        assert [r.id for r in ledger.records()] == shown
    config = tmp_path / "samebits.yaml"
    config.write_text(yaml.safe_dump({"models": {"m": {"engine": "upstream", "base_url": upstream.url}}}))
    for one in shown:
        assert _run(["replay", one, "--url", url, "--config", str(config)]) == 0


def test_the_upstream_is_asked_for_its_own_id(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: response()
    server = serve()
    [shown] = ids_of(server)
    for previous in (shown, "resp_1"):
        ids_of(server, previous_response_id=previous)
        assert upstream.asked[-1].body["previous_response_id"] == "resp_1"


@pytest.mark.parametrize("length", [MOST_UPSTREAM_ID, MOST_UPSTREAM_ID + 1])
def test_an_id_fits_a_record(serve: Any, upstream: Stub, length: int) -> None:
    upstream.answer = lambda _: response(id="r" * length)
    got = serve().http.post(PATH, json={"model": "m", "input": "Hi"})
    assert got.status_code == (200 if length == MOST_UPSTREAM_ID else 502)


@pytest.mark.parametrize("shown", ["a b", "", "é", "r" * (MOST_UPSTREAM_ID + 1), 7])
@pytest.mark.parametrize("ends", [False, True])
def test_a_stream_under_no_id_is_refused_and_recorded(
    serve: Any, upstream: Stub, tmp_path: Path, shown: object, ends: bool
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    upstream.answer = lambda _: events(id=shown)[: 3 if ends else 2]
    got = serve(ledger={"url": url}).http.post(PATH, json={"model": "m", "input": "Hi", "stream": True})
    assert got.json()["error"]["code"] == "upstream_malformed"
    with Ledger.open(url, readonly=True) as ledger:
        assert [record.kind for record in ledger.records()] == ["error"]


def test_the_events_of_a_stream_that_breaks_off_are_numbered_to_the_end(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: events()[:2]
    got = serve().http.post(PATH, json={"model": "m", "input": "Hi", "stream": True})
    data = [json.loads(line.removeprefix("data: ")) for line in got.text.splitlines() if line.startswith("data: ")]
    assert [(event["type"], event["sequence_number"]) for event in data] == [
        ("response.created", 0),
        ("response.output_text.delta", 1),
        ("error", 2),
    ]


@pytest.mark.parametrize("streams", [False, True])
def test_a_response_that_failed_is_an_error(serve: Any, upstream: Stub, tmp_path: Path, streams: bool) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    failed = response(status="failed", error={"code": "server_error", "message": "overheated"})
    upstream.answer = lambda _: (
        [*events()[:2], {"type": "response.failed", "sequence_number": 2, "response": failed}] if streams else failed
    )
    got = serve(ledger={"url": url}).http.post(PATH, json={"model": "m", "input": "Hi", "stream": streams})
    assert "overheated" in got.text
    assert "response.failed" not in got.text
    with Ledger.open(url, readonly=True) as ledger:
        assert [record.kind for record in ledger.records()] == ["error"]


@pytest.mark.parametrize("name", [None, 7, "a\ndata: {}", "a\rb"])
def test_an_event_whose_name_is_no_line_is_not_passed_on(serve: Any, upstream: Stub, name: object) -> None:
    upstream.answer = lambda _: [*events()[:1], {"type": name, "sequence_number": 1}]
    got = serve().http.post(PATH, json={"model": "m", "input": "Hi", "stream": True})
    assert [line for line in got.text.splitlines() if line.startswith("event:")] == [
        "event: response.created",
        "event: error",
    ]
    assert "upstream_malformed" in got.text


def test_what_is_no_id_of_ours_is_left_alone() -> None:
    for other in ("resp_1", "a.b", "resp_1.resp-xyz", new_id(PATH)):
        assert upstream_id(other) == other
    assert upstream_id(f"a.{new_id(PATH)}") == "a"
    assert new_id(PATH) != new_id(PATH)


# ---- the cache -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LLM(write_model(tmp_path_factory.mktemp("model"))) as made:
        yield made


def steady(value: Any, ids: dict[str, str]) -> Any:
    """A value without what differs each time: ids are numbered as they come."""
    if isinstance(value, dict):
        kept = {n: steady(v, ids) for n, v in value.items() if n not in ("created_at", "samebits", "usage")}
        return {n: ids.setdefault(v, f"id {len(ids)}") if n in ("id", "item_id") else v for n, v in kept.items()}
    return [steady(item, ids) for item in value] if isinstance(value, list) else value


def merged(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with the deltas of a text in one, and without their numbers."""
    result: list[dict[str, Any]] = []
    for number, event in enumerate(events):
        assert event.pop("sequence_number") == number
        if result and event["type"].endswith("text.delta") and event["type"] == result[-1]["type"]:
            result[-1]["delta"] += event["delta"]
            result[-1]["logprobs"] += event["logprobs"]
        else:
            result.append(event)
    return steady(result, {})  # type: ignore[no-any-return]


TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'
BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"include": ["message.output_text.logprobs"], "metadata": {"a": "b"}}, "A text."),
    "call": ({"tools": [TOOL]}, CALL),
    "both": ({"tools": [TOOL]}, f"Look.\n{CALL}\n{CALL}"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hit_has_the_events_of_a_stream(serve: Any, tmp_path: Path, name: str) -> None:
    """The events of our own engine are the measure."""
    body, script = BODIES[name]
    body = {"model": NAME, "input": "Hi", "seed": 1} | body
    with LLM(write_model(tmp_path, context=4096)) as llm:
        decoder = make_scripted(llm)
        server = serve({NAME: llm}, policies={"kept": {"cache": "deterministic"}}, policy="kept")

        def got(streams: bool, **headers: str) -> tuple[str, Any]:
            answer = server.http.post(PATH, json=body | {"stream": streams}, headers=headers)
            assert answer.status_code == 200, answer.text
            lines = [line for line in answer.text.splitlines() if line]
            if not streams:
                return answer.headers["x-samebits-cache"], answer.json()
            events = [json.loads(data.removeprefix("data: ")) for data in lines[1::2]]
            assert lines[::2] == [f"event: {event['type']}" for event in events]
            return answer.headers["x-samebits-cache"], events

        decoder.prompt_length = server.http.post(PATH, json=body | {"max_output_tokens": 1}).json()["usage"][
            "input_tokens"
        ]
        decoder.script = script.encode()
        measure = merged(got(True, **{"x-samebits-cache": "bypass"})[1])
        plain = got(False, **{"x-samebits-cache": "bypass"})[1]
        for first in (False, True):
            server.http.delete("/cache")
            found = [got(streams) for streams in (first, False, True)]
            assert [status for status, _ in found] == ["miss", "hit", "hit"]
            assert steady(found[1][1], {}) == steady(plain, {})
            assert merged(found[2][1]) == measure
        assert {"text": 1, "call": 1, "both": 3}[name] == len(plain["output"])


def test_items_and_parts_of_other_kinds_come_whole() -> None:
    reasoning = {"id": "rs", "type": "reasoning", "summary": []}
    parts = [{"type": "refusal", "refusal": "No."}, {"type": "other", "x": 1}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": parts}
    whole = {"id": "r", "status": "completed", "output": [reasoning, message, {"type": []}], "samebits": {}}
    events = list(events_of(whole))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == [
        *("created", "in_progress", "output_item.added", "output_item.done", "output_item.added"),
        *("content_part.added", "refusal.delta", "refusal.done", "content_part.done"),
        *("content_part.added", "content_part.done", "output_item.done"),
        *("output_item.added", "output_item.done", "completed"),
    ]
    assert events[5]["part"] == {"type": "refusal", "refusal": ""}
    assert "samebits" not in events[0]["response"]
    assert events[-1]["response"]["samebits"] == {}


def test_an_answer_that_passed_the_cache_by_says_why(serve: Any, llm: LLM, upstream: Stub) -> None:
    server = serve({NAME: llm}, policies={"kept": {"cache": "deterministic"}}, policy="kept")
    cases: list[tuple[str, dict[str, Any], dict[str, str], str | None]] = [
        ("/generate", {"text": "Hi", "sampling_params": {"max_new_tokens": 2}}, {}, "route"),
        (PATH, {"input": "Hi", "max_output_tokens": 2, "temperature": 1.0}, {}, "unseeded"),
        (PATH, {"input": "Hi", "max_output_tokens": 2}, {"x-samebits-cache": "bypass"}, "asked"),
        (PATH, {"input": "Hi", "max_output_tokens": 2}, {}, None),
    ]
    for path, body, headers, reason in cases:
        for streams in (False, True):
            got = server.http.post(path, json={"model": NAME, "stream": streams} | body, headers=headers)
            assert got.headers.get("x-samebits-cache-reason") == reason
            assert got.headers["x-samebits-cache"] == ("miss" if reason is None else "bypass")
