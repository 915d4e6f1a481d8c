"""/metrics counts what happened; /v1/models, /health and /ready say what is."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from live import NAME, Live, live

from samebits import LLM
from samebits.engine import Event
from waiting import PATIENCE_S


@pytest.fixture
def fresh(model_folder: str) -> Iterator[Live]:
    with LLM(model_folder) as llm, live({NAME: llm}) as server:
        yield server


def values(api: Live, accept: str = "*/*") -> dict[str, float]:
    response = api.http.get("/metrics", headers={"accept": accept})
    assert response.status_code == 200
    lines = [line for line in response.text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_counts(fresh: Live) -> None:
    first = fresh.complete("x" * 40, max_tokens=5, n=2, ignore_eos=True)
    fresh.complete("x" * 40, max_tokens=5, ignore_eos=True)
    fresh.stream("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], max_tokens=3, ignore_eos=True)
    fresh.refused("/v1/completions", prompt="")
    fresh.http.get("/nothing")
    found = values(fresh)
    route = 'samebits_http_requests_total{method="POST",route="/v1/completions",status="%d"}'
    assert (found[route % 200], found[route % 400]) == (2, 1)
    assert found['samebits_http_requests_total{method="GET",route="unmatched",status="404"}'] == 1
    assert found['samebits_tokens_total{kind="output",model="small"}'] == 18
    cached = first["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert found['samebits_tokens_total{kind="cached_prompt",model="small"}'] >= cached + 32
    assert found['samebits_first_token_seconds_count{model="small"}'] == 3
    assert found['samebits_http_request_seconds_count{route="/v1/completions"}'] == 3
    assert found['samebits_engine_up{model="small"}'] == 1
    assert found['samebits_choices{model="small",state="running"}'] == 0
    assert found['samebits_kv_pages{model="small",state="held"}'] == 0
    assert found['samebits_engine_events_total{kind="prefix_hits",model="small"}'] >= 1
    [info] = [name for name in found if name.startswith("samebits_model_info")]
    assert first["system_fingerprint"] in info


def test_what_is_under_way(model_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = threading.Event()
    with LLM(model_folder) as llm, live({NAME: llm}) as api:
        step = llm.engine.step

        def until_it_is_read() -> list[Event]:
            if llm.engine.running:  # the first token is out, and the counts stand still
                assert read.wait(PATIENCE_S)
            return step()

        monkeypatch.setattr(llm.engine, "step", until_it_is_read)
        body = {"model": NAME, "prompt": "a", "max_tokens": 500, "ignore_eos": True, "stream": True}
        with api.http.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_lines())
            found = values(api)
            read.set()
        assert found['samebits_choices{model="small",state="running"}'] == 1
        assert found['samebits_kv_pages{model="small",state="held"}'] > 0


def test_two_formats(fresh: Live) -> None:
    plain = fresh.http.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    newer = fresh.http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert newer.headers["content-type"].startswith("application/openmetrics-text")
    assert newer.text.endswith("# EOF\n")


def test_two_servers_do_not_share_counts(fresh: Live, model_folder: str) -> None:
    fresh.complete(max_tokens=1)
    with LLM(model_folder) as llm, live({NAME: llm}) as other:
        assert 'samebits_tokens_total{kind="output",model="small"}' not in values(other)


def test_several_models(model_folder: str) -> None:
    with LLM(model_folder) as one, LLM(model_folder, "fp32") as other, live({NAME: one, "exact/fp32": other}) as api:
        listed = {m["id"]: m["samebits"] for m in api.http.get("/v1/models").json()["data"]}
        assert listed.keys() == {NAME, "exact/fp32"}
        assert listed[NAME]["fingerprint"] != listed["exact/fp32"]["fingerprint"]
        assert api.http.get("/v1/models/exact/fp32").json()["samebits"]["profile"] == "fp32"
        answers = [api.post("/v1/completions", model=name, prompt="a", max_tokens=2).json() for name in listed]
        assert [a["system_fingerprint"] for a in answers] == [listed[name]["fingerprint"] for name in listed]
        error = api.post("/generate", text="a").json()["error"]
        assert error["param"] == "model"
        assert "exact/fp32" in error["message"]
