"""Every error in OpenAI's shape, by one table; limits, keys, and a server that drains or has broken down."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import NAME, Live, Scripted, error_of, live

from samebits import LLM
from samebits.api.errors import TABLE, failure
from samebits.errors import InputError, NumericsError, SamebitsError
from samebits.gateway.json_body import read_json
from waiting import PATIENCE_S, wait_until

COMPLETIONS = "/v1/completions"
JSON = {"content-type": "application/json"}
ROOT = Path(__file__).parents[2]


def raw(api: Live, content: bytes, content_type: str = "application/json") -> httpx.Response:
    return api.http.post(COMPLETIONS, content=content, headers={"content-type": content_type})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"model": "small", "prompt": "a\xff"}', "not UTF-8"),
        (b'{"model": "small", "prompt": NaN}', "NaN"),
        (b'{"model": "small", "prompt": "a", "temperature": Infinity}', "Infinity"),
        (b'{"model": "small", "prompt": "a", "seed": 1, "seed": 2}', "twice"),
        (b'{"model": "small", "prompt": ' + b"[" * 100_000, "nested"),
        (b'{"model": "small", "prompt": "a", "seed": ' + b"9" * 5000 + b"}", "digits"),
        (b"[]", "body"),
        (b'"a"', "body"),
        (b"null", "body"),
    ],
)
def test_a_body_that_is_no_json_object(api: Live, content: bytes, said: str) -> None:
    assert said in error_of(raw(api, content), 400)["message"]
    assert api.complete(max_tokens=1)


@pytest.mark.parametrize("levels", [10, 120, 126, 127, 128, 500, 990, 3000])
@pytest.mark.parametrize("field", ["prompt", "messages", "stop", "metadata", "logit_bias", "tools", "response_format"])
def test_nesting_is_no_fault_of_the_server(api: Live, field: str, levels: int) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        value = opening * levels + "1" + closing * levels
        for path in (COMPLETIONS, "/v1/chat/completions"):
            error_of(api.http.post(path, content=f'{{"model": "small", "{field}": {value}}}', headers=JSON), 400)
    assert api.complete(max_tokens=1)


def test_numbers_too_large_for_a_float(api: Live) -> None:
    content = b'{"model": "small", "prompt": "a", "temperature": 1e999}'
    assert error_of(raw(api, content), 400)["param"] == "temperature"


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_a_body_must_be_sent_as_json(api: Live, content_type: str) -> None:
    """A page of another site can make a browser post text/plain to this machine without asking."""
    error = error_of(raw(api, b'{"model": "small", "prompt": "a"}', content_type), 415)
    assert error["code"] == "unsupported_media_type"
    assert raw(api, b'{"model": "small", "prompt": "a"}', "Application/JSON; charset=utf-8").status_code == 200


def test_unknown_routes_and_methods(api: Live) -> None:
    assert error_of(api.http.get("/v1/nothing"), 404)["code"] == "not_found"
    assert error_of(api.http.get(COMPLETIONS), 405)["code"] == "method_not_allowed"
    assert error_of(api.http.delete("/health"), 405)["code"] == "method_not_allowed"
    assert error_of(api.http.get("/v1/models/nothing"), 404)["code"] == "model_not_found"


def test_embeddings_are_refused(api: Live) -> None:
    error = api.refused("/v1/embeddings", input="a")
    assert error["code"] == "unsupported_parameter"


def test_the_table_covers_every_deliberate_error_and_is_documented() -> None:
    classes = {raised for raised, _ in TABLE}
    guide = (ROOT / "docs" / "guide" / "server.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| (\d{3}) \| `(\w+)` \| `(\w+)` \|", guide, re.MULTILINE))
    assert {(str(kind.status), kind.type, kind.code) for _, kind in TABLE} <= rows
    for i, (raised, _) in enumerate(TABLE):
        assert not any(issubclass(raised, earlier) for earlier, _ in TABLE[:i]), f"{raised} is never reached"
    assert SamebitsError not in classes, "a new error is to be given a row, not a general answer"


def test_what_was_not_raised_on_purpose_is_not_shown() -> None:
    answer = failure(RuntimeError("a secret"))
    assert answer.status == 500
    assert "secret" not in json.dumps(answer.body)
    assert "secret" in json.dumps(failure(InputError("a secret", field="x", remedy="y")).body)


def test_json_is_read_as_it_is_written() -> None:
    assert list(read_json(b'{"z": 1, "a": {"y": 2.5, "b": [1, 18446744073709551616]}}')) == ["z", "a"]
    assert read_json(b"18446744073709551616") == 2**64
    assert read_json('"é😀"'.encode()) == "é😀"


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_long_bodies(model_folder: str) -> None:
    with LLM(model_folder) as llm, live({NAME: llm}, body_limit=1000) as api:
        error = error_of(api.post(COMPLETIONS, model=NAME, prompt="a" * 1000), 413)
        assert error["code"] == "body_too_large"

        def pieces() -> Any:
            yield b'{"model": "small", "prompt": "'
            for _ in range(100):
                yield b"a" * 100

        sent_without_length = api.http.post(COMPLETIONS, content=pieces(), headers={"content-type": "application/json"})
        assert error_of(sent_without_length, 413)["code"] == "body_too_large"
        assert api.complete("a" * 100, max_tokens=1)


def test_a_full_queue_answers_429_and_recovers(model_folder: str) -> None:
    with LLM(model_folder) as llm:
        decoder = Scripted(llm.engine._decoder, range(256), 257)
        llm.engine._decoder = decoder
        with live({NAME: llm}, max_choices=3) as api:
            decoder.gate.clear()
            answers: list[int] = []
            asking = [threading.Thread(target=lambda: answers.append(api.post(COMPLETIONS, **BODY).status_code))]
            asking[0].start()
            wait_until(lambda: api.driver.choices == 3)
            response = api.post(COMPLETIONS, **(BODY | {"n": 1}))
            assert error_of(response, 429)["code"] == "queue_full"
            assert int(response.headers["retry-after"]) > 0
            decoder.gate.set()
            asking[0].join(PATIENCE_S)
            assert answers == [200]
            assert api.complete(max_tokens=1)


BODY: dict[str, Any] = {"model": NAME, "prompt": "a", "n": 3, "max_tokens": 4}


def test_a_request_that_takes_too_long(model_folder: str) -> None:
    with LLM(model_folder) as llm:
        decoder = Scripted(llm.engine._decoder, range(256), 257)
        llm.engine._decoder = decoder
        with live({NAME: llm}, request_timeout=0.2) as api:
            decoder.gate.clear()
            error = error_of(api.post(COMPLETIONS, **BODY), 408)
            assert error["code"] == "request_timeout"
            with api.http.stream("POST", COMPLETIONS, json=BODY | {"stream": True}) as response:
                assert response.status_code == 200
                [event] = [line for line in response.iter_lines() if line]
            assert json.loads(event.removeprefix("data: "))["error"]["code"] == "request_timeout"
            decoder.gate.set()
            wait_until(lambda: api.engine.unfinished == 0)
            assert api.engine.pool.held == 0


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_keys(model_folder: str) -> None:
    with (
        LLM(model_folder) as llm,
        live({NAME: llm}, keys=["first", "sécond"]) as api,
        httpx.Client(base_url=api.url, timeout=PATIENCE_S) as plain,
    ):
        for header in (None, "", "Bearer", "Bearer wrong", "Bearer first2", "Basic first", "first"):
            headers = {} if header is None else {"authorization": header}
            for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing"):
                response = plain.get(path, headers=headers)
                assert error_of(response, 401)["code"] == "invalid_api_key"
                assert response.headers["www-authenticate"] == "Bearer"
        assert plain.get("/health").status_code == plain.get("/ready").status_code == 200
        for key in ("first", "sécond"):
            right = {b"authorization": f"Bearer {key}".encode()}
            assert plain.get("/v1/models", headers=right).status_code == 200


# ---- when things break ----------------------------------------------------------------------------------------------


def test_an_error_in_mid_stream_is_an_event(model_folder: str, caplog: pytest.LogCaptureFixture) -> None:
    with LLM(model_folder) as llm:
        decoder = Scripted(llm.engine._decoder, range(256), 257)
        llm.engine._decoder = decoder
        with live({NAME: llm}) as api:
            body = {"model": NAME, "prompt": "a", "max_tokens": 300, "ignore_eos": True, "stream": True}
            # It breaks after the first token, and before the last one.
            with api.standing(steps=1) as engine, api.http.stream("POST", COMPLETIONS, json=body) as response:
                lines = (line for line in response.iter_lines() if line)
                first = next(lines)
                decoder.fault = RuntimeError("the disk is on fire")
                engine.leave.set()
                *_, last = lines
            assert "choices" in json.loads(first.removeprefix("data: "))
            error = json.loads(last.removeprefix("data: "))["error"]
            assert (error["type"], error["code"]) == ("server_error", "engine_failed")
            # The engine is gone for good: nothing hangs, and the probes say so.
            assert api.refused(COMPLETIONS, 500, prompt="a")["code"] == "engine_failed"
            for path in ("/health", "/ready"):
                response = api.http.get(path)
                assert response.status_code == 503
                assert "the disk is on fire" in response.json()["faults"][NAME]
            assert 'samebits_engine_up{model="small"} 0.0' in api.http.get("/metrics").text
    assert "the engine thread ends" in caplog.text


def test_penalties_that_overflow_are_the_callers_fault(api: Live) -> None:
    error = api.refused(COMPLETIONS, prompt="abc", repetition_penalty=1e-45, max_tokens=4)
    assert error["param"] == "repetition_penalty"
    assert failure(NumericsError("x")).status == 500
    assert api.complete(max_tokens=1)
