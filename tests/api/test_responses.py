"""POST /v1/responses: items, formats, tools, the order of events, the openai package."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live import NAME, Live, Scripted, live, make_scripted

from samebits import LLM
from waiting import wait_until

PATH = "/v1/responses"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "name": "weather", "parameters": CITY | {"additionalProperties": False}},
    {"type": "function", "name": "now", "description": "Says the time."},
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city":  "Zürich"}}\n</tool_call>'
SCHEMA = {
    "type": "object",
    "properties": {"zulu": {"enum": [1, 2]}, "alpha": {"type": "boolean"}},
    "required": ["zulu", "alpha"],
    "additionalProperties": False,
}
FORMAT = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}
Say = Callable[..., Live]


@pytest.fixture
def says(stage: tuple[Live, Scripted]) -> Say:
    """Makes the model answer "Hi", with tools or without."""
    server, decoder = stage

    def say(text: str, tools: Any = None) -> Live:
        decoder.script = None
        body = {"input": "Hi", "max_output_tokens": 1} | ({} if tools is None else {"tools": tools})
        decoder.prompt_length = server.ok(PATH, **body)["usage"]["input_tokens"]
        decoder.script = text.encode()
        return server

    return say


def events(server: Live, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, with their names and numbers checked."""
    found = []
    with server.http.stream("POST", PATH, json={"model": NAME, "stream": True} | body) as response:
        assert response.status_code == 200, response.read()
        lines = [line for line in response.iter_lines() if line]
    for name, data in zip(lines[::2], lines[1::2], strict=True):
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event.pop("sequence_number") == len(found)
        found.append(event)
    return found


def steady(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without ids and times of its own, and counts of cached tokens."""
    result = {name: value for name, value in answer.items() if name not in ("id", "created_at", "usage")}
    result["output"] = [{n: v for n, v in item.items() if n != "id"} for item in answer["output"]]
    volatile = ("cached_prompt_tokens", "prefill_chunks")
    result["samebits"] = {n: v for n, v in answer["samebits"].items() if n not in volatile}
    return result


def text_of(answer: dict[str, Any]) -> str:
    return "".join(part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"])


# ---- input -----------------------------------------------------------------------------------------------------------


def prompt_digest(answer: dict[str, Any]) -> str:
    digest: str = answer["samebits"]["prompt_tokens_sha256"]
    return digest


def test_the_prompt_is_that_of_a_chat(roomy: Live) -> None:
    user = {"role": "user", "content": "Hi"}
    call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    pairs: list[tuple[Any, list[Any]]] = [
        ("Hi", [user]),
        ([user], [user]),
        ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": t} for t in "Hi"]}], [user]),
        ([{"role": "developer", "content": "x"}, user], [{"role": "system", "content": "x"}, user]),
        (
            [
                user,
                {
                    "type": "message",
                    "role": "assistant",
                    "id": "msg_1",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "Look.", "annotations": [], "logprobs": []}],
                },
                {"type": "function_call", "call_id": "a", "name": "now", "arguments": "{}", "id": "fc_1"},
                {"type": "function_call", "call_id": "b", "name": "now", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "b", "output": "noon"},
                {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "12"}]},
                user,
            ],
            [
                user,
                {"role": "assistant", "content": "Look.", "tool_calls": [call, call | {"id": "b"}]},
                {"role": "tool", "tool_call_id": "b", "content": "noon"},
                {"role": "tool", "tool_call_id": "a", "content": "12"},
                user,
            ],
        ),
        (
            [user, {"type": "function_call", "call_id": "a", "name": "now", "arguments": "{}"}],
            [user, {"role": "assistant", "tool_calls": [call]}],
        ),
    ]
    for items, messages in pairs:
        response = roomy.ok(PATH, input=items, max_output_tokens=4)
        chat = roomy.ok("/v1/chat/completions", messages=messages, max_tokens=4)
        assert prompt_digest(response) == prompt_digest(chat)
        assert text_of(response) == chat["choices"][0]["message"]["content"]
        assert response["samebits"]["logprobs_sha256"] == chat["samebits"]["logprobs_sha256"]


def test_instructions_are_a_system_message(roomy: Live) -> None:
    one = roomy.ok(PATH, input="Hi", instructions="Be brief.", max_output_tokens=1)
    items = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert prompt_digest(one) == prompt_digest(roomy.ok(PATH, input=items, max_output_tokens=1))
    assert one["instructions"] == "Be brief."


def test_tools_are_in_the_prompt_as_in_a_chat(roomy: Live) -> None:
    nested = [{"type": "function", "function": {n: v for n, v in t.items() if n != "type"}} for t in TOOLS]
    response = roomy.ok(PATH, input="Hi", tools=TOOLS, max_output_tokens=1)
    chat = roomy.chat("Hi", tools=nested, max_tokens=1)
    assert prompt_digest(response) == prompt_digest(chat)
    assert response["tools"] == TOOLS
    assert prompt_digest(roomy.ok(PATH, input="Hi", tools=TOOLS[::-1], max_output_tokens=1)) != prompt_digest(chat)


RESULT = {"type": "function_call_output", "call_id": "a", "output": ""}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"truncation": "auto"}, "truncation"),
        ({"max_tool_calls": 1}, "max_tool_calls"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stream_options": {}}, "stream_options"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "tool", "content": ""}]}, "input[0].role"),
        ({"input": [RESULT]}, "input[0].call_id"),
        (
            {"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "["}]},
            "input[0].arguments",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].name"),
        ({"tools": [TOOLS[0] | {"parameters": {"type": 5}}]}, "tools[0].parameters"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"tools": TOOLS, "text": FORMAT}, "text.format"),
        ({"tools": TOOLS, "include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": 5}}}}, "text.format"),
        (
            {
                "text": {
                    "format": {"type": "json_schema", "name": "x", "schema": {"type": "array", "uniqueItems": True}}
                }
            },
            "text.format",
        ),
    ],
)
def test_what_is_not_supported_is_named(roomy: Live, body: dict[str, Any], param: str) -> None:
    found = roomy.refused(PATH, **({"input": "Hi"} | body))["param"]
    assert found == param or (param in ("tools[0]", "input[0]", "input[0].content[0]") and found.startswith(param))


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_an_answer(roomy: Live) -> None:
    body = {"input": "Hi", "max_output_tokens": 6, "temperature": 1, "seed": 4, "metadata": {"a": "b"}}
    answer = roomy.ok(PATH, **body)
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    [item] = answer["output"]
    assert item["status"] == "incomplete"
    assert answer["usage"]["output_tokens"] == 6
    assert answer["usage"]["total_tokens"] == answer["usage"]["input_tokens"] + 6
    assert (answer["temperature"], answer["metadata"], answer["store"]) == (1.0, {"a": "b"}, False)
    assert answer["samebits"]["seed"] == 4
    assert answer["system_fingerprint"] == answer["samebits"]["fingerprint"]
    assert steady(
        roomy.ok(PATH, input="Hi", max_output_tokens=6, temperature=1, seed=4, metadata={"a": "b"})
    ) == steady(answer)


def test_logprobs(roomy: Live) -> None:
    body = {"input": "Hi", "max_output_tokens": 5, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    [item] = roomy.ok(PATH, **body)["output"]
    logprobs = item["content"][0]["logprobs"]
    assert [len(t["top_logprobs"]) for t in logprobs] == [2] * 5
    assert "".join(t["token"] for t in logprobs) == item["content"][0]["text"] or any(
        "�" in t["token"] for t in logprobs
    )
    deltas = [e for e in events(roomy, **body) if e["type"] == "response.output_text.delta"]
    assert [t for e in deltas for t in e["logprobs"]] == logprobs


def test_integers_of_any_size_come_back(roomy: Live) -> None:
    schema = {"type": "object", "properties": {"a": {"maximum": 10**30, "type": "integer"}}}
    tools = [{"type": "function", "name": "f", "parameters": schema, "strict": False}]
    response = roomy.post(PATH, model=NAME, input="Hi", tools=tools, max_output_tokens=1)
    assert response.status_code == 200
    assert json.loads(response.text)["tools"] == tools


def test_a_format_is_kept_and_judged(roomy: Live) -> None:
    seen = set()
    for seed in range(6):
        body = {"input": "Hi", "text": FORMAT, "temperature": 1, "seed": seed}
        answer = roomy.ok(PATH, **body)
        assert answer["status"] == "completed"
        value = json.loads(text_of(answer))
        assert list(value) == ["zulu", "alpha"]
        assert value["zulu"] in (1, 2)
        assert answer["text"] == FORMAT
        seen.add(text_of(answer))
        assert events(roomy, **body)[-1]["response"]["output"][0]["content"] == answer["output"][0]["content"]
    assert len(seen) > 1, "not exercised"
    cut = roomy.ok(PATH, input="Hi", text=FORMAT, max_output_tokens=4)
    assert cut["status"] == "incomplete"
    assert len(text_of(cut)) == 4


def test_a_json_object(roomy: Live) -> None:
    answer = roomy.ok(
        PATH, input="Hi", text={"format": {"type": "json_object"}}, max_output_tokens=400, temperature=1, seed=1
    )
    assert text_of(answer).startswith("{")
    assert roomy.ok(PATH, input="Hi", max_output_tokens=4, temperature=1, seed=1)["text"] == {
        "format": {"type": "text"}
    }


def test_an_answer_that_breaks_what_was_not_enforced_is_an_error(roomy: Live) -> None:
    schema = {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3, "maxItems": 3}
    loose = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": False}}
    error = roomy.refused(PATH, input="Hi", text=loose)
    assert error["code"] == "output_invalid"
    assert "uniqueItems" in error["message"]
    found = events(roomy, input="Hi", text=loose)
    assert found[-1]["type"] == "error"
    assert {n: found[-1][n] for n in ("code", "message", "param")} == {
        n: error[n] for n in ("code", "message", "param")
    }


# ---- events ----------------------------------------------------------------------------------------------------------

TEXT_EVENTS = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
CALL_EVENTS = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]
BEGIN = ["response.created", "response.in_progress"]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Hello", TEXT_EVENTS),
        ("", [k for k in TEXT_EVENTS if "delta" not in k]),
        (CALL, CALL_EVENTS),
        (f"{CALL}\n{CALL}", CALL_EVENTS * 2),
        (f"Look.\n{CALL}", TEXT_EVENTS + CALL_EVENTS),
        ("<tool_call>broken", TEXT_EVENTS),
    ],
)
def test_the_order_of_events_and_the_answer_they_make(says: Say, text: str, kinds: list[str]) -> None:
    server = says(text, TOOLS)
    whole = server.ok(PATH, input="Hi", tools=TOOLS)
    found = events(server, input="Hi", tools=TOOLS)
    order = [k for k, _ in itertools.groupby(e["type"] for e in found)]
    assert order == [*BEGIN, *kinds, "response.completed"]
    assert found[0]["response"]["status"] == "in_progress"
    assert found[0]["response"]["output"] == []
    assert steady(found[-1]["response"]) == steady(whole)
    done = [e["item"] for e in found if e["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"]
    added = [e["item"] for e in found if e["type"] == "response.output_item.added"]
    assert [(i["id"], i["type"]) for i in added] == [(i["id"], i["type"]) for i in done]
    assert [e["output_index"] for e in found if e["type"] == "response.output_item.done"] == list(range(len(done)))
    deltas = "".join(e["delta"] for e in found if e["type"] == "response.output_text.delta")
    assert deltas == text_of(whole)
    arguments = [e["delta"] for e in found if e["type"] == "response.function_call_arguments.delta"]
    assert arguments == [i["arguments"] for i in whole["output"] if i["type"] == "function_call"]
    errors = whole["samebits"]["tool_errors"]
    assert bool(errors) == (text == "<tool_call>broken")


def test_calls_are_those_of_a_chat(says: Say) -> None:
    answer = says(CALL, TOOLS).ok(PATH, input="Hi", tools=TOOLS)
    [item] = answer["output"]
    assert (item["name"], item["arguments"], item["status"]) == ("weather", '{"city":  "Zürich"}', "completed")
    nested = [{"type": "function", "function": {n: v for n, v in t.items() if n != "type"}} for t in TOOLS]
    [call] = says(CALL, TOOLS).chat("Hi", tools=nested)["choices"][0]["message"]["tool_calls"]
    assert call["id"] == item["call_id"]


def test_a_demanded_call(roomy: Live) -> None:
    body = {
        "input": "Hi",
        "tools": TOOLS,
        "tool_choice": {"type": "function", "name": "now"},
        "parallel_tool_calls": False,
    }
    answer = roomy.ok(PATH, **body, max_output_tokens=60)
    assert [(i["type"], i["name"], i["arguments"]) for i in answer["output"]] == [("function_call", "now", "{}")]
    assert steady(events(roomy, **body, max_output_tokens=60)[-1]["response"]) == steady(answer)


def test_the_same_among_others(roomy: Live) -> None:
    bodies = [{"input": f"q{i}", "max_output_tokens": 12, "temperature": 1, "seed": i} for i in range(4)]
    bodies += [{"input": "q", "text": FORMAT, "temperature": 1, "seed": i} for i in range(4)]
    alone = [steady(roomy.ok(PATH, **body)) for body in bodies]
    with ThreadPoolExecutor(16) as pool, roomy.standing() as engine:
        asked = [pool.submit(roomy.ok, PATH, **bodies[i % 8]) for i in range(48)]
        wait_until(lambda: roomy.driver.choices == 16)
        engine.leave.set()
        together = [steady(each.result()) for each in asked]
    assert together == [alone[i % 8] for i in range(48)]
    assert max(roomy.engine.stats.batch_sizes) > 4, "not exercised"


def test_an_error_on_the_way_is_an_event(stage: tuple[Live, Scripted], roomy_folder: str) -> None:
    with LLM(roomy_folder) as llm:
        decoder = make_scripted(llm)
        with live({NAME: llm}) as server:
            decoder.fault = RuntimeError("planted")
            found = events(server, input="Hi")
            assert [e["type"] for e in found] == [*BEGIN, "error"]
            assert found[-1]["code"] == "engine_failed"


# ---- the openai package ----------------------------------------------------------------------------------------------


def test_the_openai_package(says: Say, roomy: Live) -> None:
    openai = pytest.importorskip("openai", reason="install the extra 'clients'")
    pydantic = pytest.importorskip("pydantic")
    server = says(f"Look.\n{CALL}", TOOLS)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.responses.create(model=NAME, input="Hi", tools=TOOLS)
        assert answer.output_text == "Look.\n"
        assert json.loads(answer.output[1].arguments) == {"city": "Zürich"}
        with client.responses.stream(model=NAME, input="Hi", tools=TOOLS) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert final.output_text == answer.output_text
        assert final.output[1].arguments == answer.output[1].arguments
        items = [{"role": "user", "content": "Hi"}, *answer.output]
        items.append({"type": "function_call_output", "call_id": answer.output[1].call_id, "output": "sun"})
        again = client.responses.create(model=NAME, input=items, tools=TOOLS, max_output_tokens=2)
        assert again.usage.input_tokens > answer.usage.input_tokens
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            client.responses.create(model=NAME, input="Hi", previous_response_id=answer.id)

    class Found(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=8)
        days: int = pydantic.Field(ge=1, le=9)

    with openai.OpenAI(base_url=f"{roomy.url}/v1", api_key="none", max_retries=0) as client:
        parsed = client.responses.parse(
            model=NAME, input="Hi", text_format=Found, temperature=1, extra_body={"seed": 2}
        )
        assert isinstance(parsed.output_parsed, Found)
