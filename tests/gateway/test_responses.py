"""Answers of an upstream's /v1/responses: an id for each, and the upstream's own where it is asked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from stub import Stub

from samebits.cli import _run
from samebits.gateway.ids import MOST_UPSTREAM_ID, new_id, upstream_id
from samebits.ledger import Ledger
from samebits.ledger.entry import PUBLIC_ID

PATH = "/v1/responses"


def response(text: str = "Blue.", **others: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    return {"id": "resp_1", "object": "response", "model": "m-1", "status": "completed", "output": [message], **others}


def events() -> list[Any]:
    begun = response(status="in_progress", output=[])
    return [
        {"type": "response.created", "sequence_number": 0, "response": begun},
        {"type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1", "delta": "Blue."},
        {"type": "response.completed", "sequence_number": 2, "response": response()},
    ]


def ids_of(server: Any, **body: Any) -> set[str]:
    """The ids that the answer to a request shows."""
    got = server.http.post(PATH, json={"model": "m", "input": "Hi", "temperature": 0} | body)
    assert got.status_code == 200, got.text
    if not body.get("stream"):
        return {got.json()["id"]}
    data = [json.loads(line.removeprefix("data: ")) for line in got.text.splitlines() if line.startswith("data: ")]
    assert len(data) == 3
    return {event["response"]["id"] for event in data if "response" in event}


def test_every_answer_has_an_id_of_its_own(serve: Any, upstream: Stub, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    server = serve(ledger={"url": url})
    upstream.answer = lambda asked: events() if asked.body.get("stream") else response()
    found = [ids_of(server, stream=streams) for streams in (False, False, True, True, False)]
    assert upstream.calls == 3, "the second and the last are hits"
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


def test_what_is_no_id_of_ours_is_left_alone() -> None:
    for other in ("resp_1", "a.b", "resp_1.resp-xyz", new_id(PATH)):
        assert upstream_id(other) == other
    assert upstream_id(f"a.{new_id(PATH)}") == "a"
    assert new_id(PATH) != new_id(PATH)
