"""Tools over HTTP: what is in the prompt, calls in answers and streams, demanded calls, the openai package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from live import NAME, Live, Scripted, joined, live, steady

from samebits import LLM
from small_model import write_model

PATH = "/v1/chat/completions"
HI = {"role": "user", "content": "Hi"}
Say = Callable[..., Live]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


WEATHER = tool(
    "weather", city={"type": "string", "maxLength": 12}, days={"type": "integer", "minimum": 1, "maximum": 9}
)
NOW = tool("now", zone={"enum": ["UTC", "CET"]})
TOOLS = [WEATHER, NOW]
ARGUMENTS = '{"city": "Zürich",  "days": 3}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'


@pytest.fixture
def says(stage: tuple[Live, Scripted]) -> Say:
    """Makes the model answer "Hi", with tools or without."""
    server, decoder = stage

    def say(text: str, tools: Any = TOOLS) -> Live:
        decoder.script = text.encode()
        decoder.prompt_length = server.ok("/tokenize", messages=[HI], tools=tools)["count"]
        return server

    return say


# ---- the prompt ------------------------------------------------------------------------------------------------------


def prompt_text(roomy: Live, **body: Any) -> str:
    ids = roomy.chat(max_tokens=1, return_token_ids=True, **body)["prompt_token_ids"]
    text: str = roomy.ok("/detokenize", tokens=ids)["prompt"]
    return text


def test_the_order_of_tools_and_keys_reaches_the_prompt(roomy: Live) -> None:
    names = ["zulu_note", "alpha_note", "mike_note"]
    tools = [tool(name, zulu_note={}, alpha_note={}, mike_note={}) for name in names]
    sent = [{"function": t["function"], "type": "function"} for t in tools]
    text = prompt_text(roomy, tools=sent)
    places = [text.index(json.dumps(t)) for t in sent]
    assert places == sorted(places)
    others = [
        prompt_text(roomy, tools=sent[::-1]),
        prompt_text(roomy, tools=tools),
        prompt_text(roomy, tools=[tool(name, alpha_note={}, zulu_note={}, mike_note={}) for name in names]),
    ]
    assert len({text, *others}) == 4, "control: another order is another prompt"


def test_tools_that_may_not_be_called_are_not_in_the_prompt(roomy: Live) -> None:
    plain = prompt_text(roomy)
    assert prompt_text(roomy, tools=TOOLS, tool_choice="none") == plain
    assert "weather" in prompt_text(roomy, tools=TOOLS)
    assert prompt_text(roomy, tools=TOOLS, tool_choice="required") == prompt_text(roomy, tools=TOOLS) + "<tool_call>"


def test_tokenize_takes_tools_as_chat_does(roomy: Live) -> None:
    chat = roomy.chat(tools=TOOLS, max_tokens=1, return_token_ids=True)["prompt_token_ids"]
    assert roomy.ok("/tokenize", messages=[HI], tools=TOOLS)["tokens"] == chat
    assert roomy.refused("/tokenize", prompt="Hi", tools=TOOLS)["param"] == "tools"


def test_calls_and_results_are_rendered(roomy: Live) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": '{"zone": "UTC"}'}}
    messages = [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "12:00"}]},
    ]
    text = prompt_text(roomy, messages=messages)
    assert '<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>' in text
    assert "<tool_response>\n12:00\n</tool_response>" in text


DEEP = '{"a":' * 200 + "1" + "}" * 200
CALLED = {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
ASSISTANT = {"role": "assistant", "tool_calls": [CALLED]}


def with_arguments(text: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [CALLED | {"function": {"name": "now", "arguments": text}}]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": []}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "x": 1}}]}, "tools[0].function.x"),
        ({"tools": [NOW, NOW]}, "tools[1].function.name"),
        ({"tools": [tool("f", a={"type": "nothing"})]}, "tools[0].function.parameters"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ({"tools": TOOLS, "tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
        ({"tools": TOOLS, "tool_choice": "required", "use_beam_search": True}, "tool_choice"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"messages": [HI, {"role": "assistant"}]}, "messages[1].content"),
        ({"messages": [HI, {"role": "assistant", "content": "", "tool_calls": []}]}, "messages[1].tool_calls"),
        ({"messages": [HI | {"tool_calls": [CALLED]}]}, "messages[0].tool_calls"),
        ({"messages": [HI | {"tool_call_id": "a"}]}, "messages[0].tool_call_id"),
        ({"messages": [HI, ASSISTANT, {"role": "tool", "content": ""}]}, "messages[2].tool_call_id"),
        (
            {"messages": [HI, ASSISTANT, {"role": "tool", "tool_call_id": "b", "content": ""}]},
            "messages[2].tool_call_id",
        ),
        ({"messages": [HI, with_arguments("{")]}, "messages[1].tool_calls[0].function.arguments"),
        ({"messages": [HI, with_arguments("[]")]}, "messages[1].tool_calls[0].function.arguments"),
        ({"messages": [HI, with_arguments('{"a": 1e999}')]}, "messages[1].tool_calls[0].function.arguments"),
        (
            {"messages": [HI, with_arguments(DEEP)]},
            "messages[1].tool_calls[0].function.arguments",
        ),
    ],
)
def test_what_is_wrong_is_named(roomy: Live, body: dict[str, Any], param: str) -> None:
    assert roomy.refused(PATH, **({"messages": [HI]} | body))["param"] == param


def test_a_schema_that_cannot_be_enforced_is_refused_where_a_call_is_demanded(roomy: Live) -> None:
    endless = tool("f", a={"$ref": "#/properties/a"})
    error = roomy.refused(PATH, messages=[HI], tools=[endless], tool_choice="required")
    assert error["param"] == "tools"
    assert "no base case" in error["message"]


def test_a_keyword_that_cannot_be_enforced_is_refused_or_left_to_the_validation(roomy: Live) -> None:
    loose = tool("f", a={"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 4})
    body = {"messages": [HI], "tool_choice": "required", "max_tokens": 60}
    error = roomy.refused(PATH, **body, tools=[loose])
    assert error["param"] == "tools"
    assert "uniqueItems at #/properties/a" in error["message"]
    loose["function"]["strict"] = False
    choices = roomy.ok(PATH, **body, tools=[loose], n=12, temperature=2, seed=1)["choices"]
    calls = [c["message"]["tool_calls"] for c in choices if "tool_calls" in c["message"]]
    for [call] in calls:
        values = json.loads(call["function"]["arguments"])["a"]
        assert len(set(values)) == len(values)
    assert 0 < len(calls) < 12, "not exercised: all were valid, or none"


# ---- answers ---------------------------------------------------------------------------------------------------------


def without_places(answer: dict[str, Any]) -> dict[str, Any]:
    """A joined stream without the places of calls, which only streams have."""
    for choice in answer["choices"]:
        for call in choice["message"].get("tool_calls", ()):
            del call["index"]
    return answer


def test_a_call(says: Say) -> None:
    answer = says(CALL).chat(tools=TOOLS)
    [choice] = answer["choices"]
    [call] = choice["message"].pop("tool_calls")
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None}
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"] == {"name": "weather", "arguments": ARGUMENTS}
    assert len(call["id"]) == 9
    assert answer["samebits"]["tool_errors"] == []
    assert says(CALL).chat(tools=TOOLS)["choices"][0]["message"]["tool_calls"] == [call], "ids repeat"


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"{CALL}\n{CALL}",
        f"Let me look.\n{CALL}",
        f"{CALL} and more",
        "<tool_call>broken",
        "No call at all.",
        "",
        " \n ",
    ],
)
@pytest.mark.parametrize(
    "extra", [{}, {"n": 2, "temperature": 1, "seed": 1}, {"logprobs": True, "return_token_ids": True}]
)
def test_a_joined_stream_is_the_whole_answer(says: Say, text: str, extra: dict[str, Any]) -> None:
    server = says(text)
    whole = steady(server.chat(tools=TOOLS, **extra))
    chunks = server.stream(PATH, messages=[HI], tools=TOOLS, stream_options={"include_usage": True}, **extra)
    assert without_places(steady(joined(chunks))) == whole
    message = whole["choices"][0]["message"]
    if "tool_calls" not in message:
        assert message["content"] == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<tool_call>\n{"name": "weather", "arguments": {"city": "x"}}\n</tool_call>', "required"),
        ('<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>', "no tool"),
        (CALL + "!", "where"),
    ],
)
def test_what_is_no_call_is_text_with_a_note(says: Say, text: str, said: str) -> None:
    answer = says(text).chat(tools=TOOLS)
    [choice] = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    assert choice["finish_reason"] == "stop"
    [error] = answer["samebits"]["tool_errors"]
    assert error["choice"] == 0
    assert said in error["message"]


def test_a_cut_call_is_text_with_a_note(says: Say) -> None:
    answer = says(CALL).chat(tools=TOOLS, max_tokens=20)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == CALL.encode()[:20].decode()
    assert "cut at max_tokens" in answer["samebits"]["tool_errors"][0]["message"]


def test_without_tools_nothing_is_read(says: Say) -> None:
    answer = says(CALL, tools=None).chat()
    assert answer["choices"][0]["message"]["content"] == CALL
    assert "tool_errors" not in answer["samebits"]


# ---- demanded calls --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "parallel", "names"),
    [
        ("required", False, {"weather", "now"}),
        ({"type": "function", "function": {"name": "now"}}, False, {"now"}),
        ({"type": "function", "function": {"name": "weather"}}, None, {"weather"}),
    ],
)
def test_a_demanded_call_is_made_by_a_model_that_knows_nothing(
    roomy: Live, choice: Any, parallel: Any, names: set[str]
) -> None:
    """The model is random, so that only the demand can make it call."""
    body = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": parallel, "max_tokens": 200}
    whole = roomy.chat(**body, n=4, temperature=1, seed=3)
    for answer in whole["choices"]:
        if answer["finish_reason"] == "length":
            assert parallel is None, "one call fits into the limit"
            continue
        assert answer["finish_reason"] == "tool_calls"
        assert answer["message"]["content"] is None
        for call in answer["message"]["tool_calls"]:
            assert call["function"]["name"] in names
            json.loads(call["function"]["arguments"])
    chunks = roomy.stream(PATH, messages=[HI], **body, n=4, temperature=1, seed=3)
    assert without_places(joined(chunks))["choices"] == whole["choices"]
    control = roomy.chat(tools=TOOLS, max_tokens=200, n=4, temperature=1, seed=3)
    assert all("tool_calls" not in c["message"] for c in control["choices"]), "control: it does not call by itself"


def test_demanded_calls_are_the_same_among_others(roomy: Live) -> None:
    body = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 120}
    alone = [roomy.chat(f"q{i % 4}", **body, temperature=1, seed=i % 4)["choices"] for i in range(4)]

    def ask(i: int) -> Any:
        if i % 3 == 0:
            return roomy.chat("other", max_tokens=30, temperature=1)
        return roomy.chat(f"q{i % 4}", **body, temperature=1, seed=i % 4)["choices"]

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(24)))
    assert all(answers[i] == alone[i % 4] for i in range(24) if i % 3)
    assert len({json.dumps(a) for a in alone}) > 1, "not exercised"


# ---- a template with tools of its own, and a special token that announces calls --------------------------------------

MISTRAL = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "{% if m.tool_calls %}[TOOL_CALLS]{{ m.tool_calls | tojson }}"
    "{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}{{ m.tool_call_id }}{{ m.name }}"
    "{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = Path(
        write_model(tmp_path_factory.mktemp("mistral"), specials=("[TOOL_CALLS]", "<|im_end|>"), context=4096)
    )
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"chat_template": MISTRAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with LLM(str(folder)) as llm, live({NAME: llm}) as server:
        yield server


def test_a_special_token_announces_calls(mistral: Live) -> None:
    tokenizer = mistral.service.models[NAME].llm.tokenizer
    marker = tokenizer.special_id("[TOOL_CALLS]")
    assert marker is not None
    body = {"tools": [NOW], "logit_bias": {str(marker): 100}, "max_tokens": 3}
    answer = mistral.chat(**body)
    assert answer["choices"][0]["message"]["content"] == "[TOOL_CALLS]" * 3
    assert answer["samebits"]["tool_errors"], "it announced calls"
    plain = mistral.chat(**(body | {"tool_choice": "none"}))
    assert plain["choices"][0]["message"]["content"] == "", "control: elsewhere a special token is no text"


def test_a_demanded_call_in_the_models_own_form(mistral: Live) -> None:
    answer = mistral.chat(tools=[NOW], tool_choice="required", parallel_tool_calls=False, max_tokens=100)
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "now"
    messages = [HI, {"role": "assistant", "tool_calls": [call]}]
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": "noon"})
    text = prompt_text(mistral, messages=messages, tools=[NOW])
    assert text.startswith(f"[AVAILABLE_TOOLS]{json.dumps([NOW])}")
    assert f"[TOOL_RESULTS]noon{call['id']}now" in text


# ---- the openai package ----------------------------------------------------------------------------------------------


def test_the_openai_package(says: Say) -> None:
    openai = pytest.importorskip("openai", reason="install the extra 'clients'")
    server = says(f"Let me look.\n{CALL}")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(model=NAME, messages=[HI], tools=TOOLS)
        message = answer.choices[0].message
        assert answer.choices[0].finish_reason == "tool_calls"
        assert message.content == "Let me look.\n"
        assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Zürich", "days": 3}
        with client.chat.completions.stream(model=NAME, messages=[HI], tools=TOOLS) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion().choices[0].message
        assert final.content == message.content
        same = [[(c.id, c.function.name, c.function.arguments) for c in m.tool_calls] for m in (message, final)]
        assert same[0] == same[1]
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}
        again = client.chat.completions.create(
            model=NAME, messages=[HI, message.to_dict(), result], tools=TOOLS, max_tokens=2
        )
        assert again.usage.prompt_tokens > answer.usage.prompt_tokens
