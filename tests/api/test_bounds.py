"""What one request may make of a server: each bound holds, and just below it everything works."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest
from live import NAME, Live, error_of, live
from pydantic import TypeAdapter, ValidationError
from test_disconnects import reset, wait_for_idle

from samebits import LLM
from samebits.api.schema_chat import ChatRequest
from samebits.api.schema_completions import CompletionRequest
from samebits.api.schema_native import GenerateRequest
from samebits.api.schema_responses import ResponseRequest
from samebits.api.schema_strict import Strict
from samebits.api.schema_tokenize import DetokenizeRequest
from samebits.api.validation import first_problem
from waiting import PATIENCE_S, wait_until

COMPLETIONS = "/v1/completions"
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
BODY = json.dumps({"model": NAME, "prompt": "a", "max_tokens": 1}).encode()


def connect(api: Live) -> socket.socket:
    host, port = api.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def answered(sock: socket.socket) -> tuple[int, bytes]:
    """Status and body of the response that comes on a connection."""
    response = http.client.HTTPResponse(sock)
    response.begin()
    return response.status, response.read()


def test_a_body_that_does_not_come(model_folder: str) -> None:
    with LLM(model_folder) as llm:
        with live({NAME: llm}, request_timeout=0.3) as api:
            with connect(api) as sock:
                sock.sendall(HEAD % len(BODY) + BODY[:-1])
                status, body = answered(sock)
            assert (status, json.loads(body)["error"]["code"]) == (408, "request_timeout")
            wait_for_idle(api)
        with live({NAME: llm}) as api, connect(api) as sock:  # the control: it is the last byte that was missing
            sock.sendall(HEAD % len(BODY) + BODY)
            assert answered(sock)[0] == 200


def test_a_body_that_breaks_off_is_no_fault_of_the_server(api: Live, caplog: pytest.LogCaptureFixture) -> None:
    with connect(api) as sock:
        sock.sendall(HEAD % len(BODY) + BODY[:-1])
        reset(sock)
    noticed = 'route="/v1/completions",status="499"}'
    wait_until(lambda: noticed in api.http.get("/metrics").text, "its end is not noticed")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("path", "most", "beyond", "field"),
    [
        (COMPLETIONS, {"stop": "x" * 1000}, {"stop": "x" * 1001}, "stop"),
        (COMPLETIONS, {"stop": ["x" * 1000]}, {"stop": ["a", "x" * 1001]}, "stop[1]"),
        (COMPLETIONS, {"stop_token_ids": [1] * 1024}, {"stop_token_ids": [1] * 1025}, "stop_token_ids"),
        (COMPLETIONS, {"prompt": ["a"] * 16, "n": 128}, {"prompt": ["a"] * 17, "n": 128}, "n"),
        (
            COMPLETIONS,
            {"prompt": ["a"] * 2, "use_beam_search": True, "best_of": 16},
            {"prompt": ["a"] * 129, "use_beam_search": True, "best_of": 16},
            "best_of",
        ),
        ("/generate", {"rid": "x" * 256}, {"rid": "x" * 257}, "rid"),
    ],
)
def test_what_answers_repeat_is_bounded(
    api: Live, path: str, most: dict[str, Any], beyond: dict[str, Any], field: str
) -> None:
    base: dict[str, Any] = {"prompt": "a", "max_tokens": 1} if path == COMPLETIONS else {"text": "a"}
    assert api.post(path, model=NAME, **(base | most)).status_code == 200
    assert api.refused(path, **(base | beyond))["param"] == field


def test_one_token_has_one_bias(api: Live) -> None:
    for spelled in ("01", "+1", "1 ", "-0", ""):
        error = error_of(api.post(COMPLETIONS, model=NAME, prompt="a", logit_bias={"1": 5, spelled: -5}), 400)
        assert str(error["param"]).startswith("logit_bias"), spelled
    assert api.complete("a", logit_bias={"0": 1, "10": 5}, max_tokens=1)


# ---- many mistakes in one body ---------------------------------------------------------------------------------------


def fields(**given: Any) -> dict[str, Any]:
    return {"model": NAME, "prompt": "a"} | given


MESSAGE = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    [
        (CompletionRequest, fields(prompt=[1] + [1.5] * 1000), "prompt[1]"),
        (CompletionRequest, fields(prompt=["a"] + [1] * 1000), "prompt[1]"),
        (CompletionRequest, fields(prompt=[[1]] + [["a"] * 1000] * 1000), "prompt[1][0]"),
        (CompletionRequest, fields(stop_token_ids=[-1] * 1000), "stop_token_ids[0]"),
        (CompletionRequest, fields(**{f"unknown{i}": 1 for i in range(1000)}), "unknown0"),
        (CompletionRequest, fields(stream_options={f"unknown{i}": 1 for i in range(1000)}), "stream_options.unknown0"),
        (CompletionRequest, fields(logit_bias={"1": 1} | {f"{i}": 101 for i in range(2, 1000)}), "logit_bias.2"),
        (CompletionRequest, fields(logit_bias={"1": 1} | {f"{i}": True for i in range(2, 1000)}), "logit_bias.2"),
        (CompletionRequest, fields(logit_bias={"1": 1} | {f"0{i}": 1 for i in range(1000)}), "logit_bias.00"),
        (CompletionRequest, fields(metadata={"a": "b"} | {f"k{i}": i for i in range(1000)}), "metadata.k0"),
        (CompletionRequest, fields(structured_outputs={"choice": ["a"] + [1] * 1000}), "structured_outputs.choice[1]"),
        (ChatRequest, {"model": NAME, "messages": [MESSAGE] + [{}] * 1000}, "messages[1].role"),
        (ChatRequest, {"model": NAME, "messages": [MESSAGE | {"content": [1] * 1000}]}, "messages[0].content[0]"),
        (ChatRequest, {"model": NAME, "messages": [MESSAGE], "tools": [1] * 1000}, "tools[0]"),
        (ResponseRequest, {"model": NAME, "input": [MESSAGE] + [{}] * 1000}, "input[1].role"),
        (ResponseRequest, {"model": NAME, "input": "a", "tools": [1] * 1000}, "tools[0]"),
        (ResponseRequest, {"model": NAME, "input": "a", "metadata": {f"k{i}": i for i in range(1000)}}, "metadata.k0"),
        (GenerateRequest, {"input_ids": ["a"] * 1000}, "input_ids[0]"),
        (DetokenizeRequest, {"model": NAME, "tokens": ["a"] * 1000}, "tokens[0]"),
    ],
)
def test_the_first_of_many_mistakes_is_told(kind: type[Strict], body: dict[str, Any], param: str) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.error_count() <= 2  # two where one field lacks two things
    assert first_problem(caught.value.errors(), skip=0).param == param


def test_control_all_mistakes_are_listed_without_it() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[int]).validate_python(["a"] * 1000)
    assert caught.value.error_count() == 1000


# ---- what is no Unicode text -----------------------------------------------------------------------------------------


LONE = "\ud800"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (COMPLETIONS, {"prompt": LONE}, "prompt"),
        (COMPLETIONS, {"prompt": ["a", "b" + LONE]}, "prompt[1]"),
        (COMPLETIONS, {"prompt": "a", "user": LONE}, "user"),
        (COMPLETIONS, {"prompt": "a", LONE: 1}, "body"),
        (COMPLETIONS, {"prompt": "a", "stream_options": {LONE: 1}}, "stream_options"),
        ("/v1/responses", {"input": "a", "metadata": {"a": "\udfff"}}, "metadata.a"),
        ("/v1/responses", {"input": "a", "metadata": {LONE: "a"}}, "metadata"),
        ("/v1/responses", {"input": "a", "instructions": LONE}, "instructions"),
        ("/v1/responses", {"input": "a", "prompt_cache_key": LONE, "stream": True}, "prompt_cache_key"),
        (
            "/v1/responses",
            {"input": "a", "tool_choice": "none", "tools": [{"type": "function", "name": "f", "description": LONE}]},
            "tools[0].description",
        ),
        ("/generate", {"text": "a", "rid": LONE}, "rid"),
    ],
)
def test_lone_surrogates_are_refused_wherever_they_stand(
    api: Live, caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any], param: str
) -> None:
    assert api.refused(path, **body)["param"] == param
    assert caplog.records == []


def test_control_a_pair_of_surrogates_is_a_character(api: Live) -> None:
    assert json.dumps("😀") == r'"\ud83d\ude00"'
    assert (
        api.complete("😀", user="😀", metadata={"😀": "\\ud800"}, max_tokens=1, echo=True)["choices"][0]["text"][0]
        == "😀"
    )


def test_no_redirect_to_an_address_of_the_clients_choice(api: Live) -> None:
    response = api.http.post(COMPLETIONS + "/", content=BODY, headers={"host": "elsewhere.example"})
    assert error_of(response, 404)["code"] == "not_found"


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_patterns_of_all_tools_together_are_bounded(api: Live) -> None:
    def tools(count: int) -> list[dict[str, Any]]:
        pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a{1,500}){1,90}$"}}}
        return [{"type": "function", "function": {"name": f"f{i}", "parameters": pattern}} for i in range(count)]

    body: dict[str, Any] = {"model": NAME, "messages": [MESSAGE]}
    assert api.post("/tokenize", tools=tools(2), **body).status_code == 200
    error = api.refused("/tokenize", tools=tools(3), **body)
    assert error["param"] == "tools[2].function.parameters"
    assert "patterns" in error["message"]
    assert api.refused(COMPLETIONS, prompt="a", structured_outputs={"regex": "(a{1000}){1000}"})["param"] == (
        "structured_outputs.regex"
    )
