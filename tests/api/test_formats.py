"""``response_format`` and ``structured_outputs``: forms that answers are held to."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live import NAME, Live, joined, steady

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "Hi"}
NOTE = {"enum": ["do", "re", "mi"]}
ORDERED = {
    "type": "object",
    "properties": {"zulu_note": NOTE, "alpha_note": NOTE, "mike_note": {"type": "integer", "minimum": 3, "maximum": 7}},
    "required": ["zulu_note", "alpha_note", "mike_note"],
    "additionalProperties": False,
}


def schema_format(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema} | more}


def content(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def test_a_schema_in_its_own_order(api: Live) -> None:
    answer = api.chat(response_format=schema_format(ORDERED), temperature=2, seed=1)
    assert answer["choices"][0]["finish_reason"] == "stop"
    value = json.loads(content(answer))
    assert list(value) == ["zulu_note", "alpha_note", "mike_note"]
    assert 3 <= value["mike_note"] <= 7
    turned = ORDERED | {"properties": dict(reversed(ORDERED["properties"].items()))}  # type: ignore[attr-defined]
    other = api.chat(response_format=schema_format(turned), temperature=2, seed=1)
    assert list(json.loads(content(other))) == ["mike_note", "alpha_note", "zulu_note"]
    digests = [a["samebits"]["form_sha256"] for a in (answer, other, api.chat(max_tokens=1))]
    assert digests[2] is None
    assert digests[0] != digests[1]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"response_format": schema_format(ORDERED)}, r"\{.*\}"),
        ({"structured_outputs": {"json": ORDERED}}, r"\{.*\}"),
        ({"structured_outputs": {"regex": "[ab]{3}-[0-9]{2}"}}, "[ab]{3}-[0-9]{2}"),
        ({"structured_outputs": {"choice": ["yes", "no", "perhaps"]}}, "yes|no|perhaps"),
        ({"structured_outputs": {"grammar": 'start: "x" ("y" | "z") "!"'}}, "x[yz]!"),
    ],
)
def test_every_form_on_both_routes_whole_and_streamed(api: Live, path: str, form: Any, pattern: str) -> None:
    start: dict[str, Any] = {"messages": [USER]} if path == CHAT else {"prompt": "Hi"}
    body = start | form | {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 200}
    api.ok(path, **body)
    whole = api.ok(path, **body)
    for choice in whole["choices"]:
        text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        assert re.fullmatch(pattern, text), text
        assert choice["finish_reason"] == "stop"
    assert steady(joined(api.stream(path, **body, stream_options={"include_usage": True}))) == steady(whole)


def test_any_json_object_cut_by_the_limit_is_left_as_it_is(api: Live) -> None:
    answer = api.chat(response_format={"type": "json_object"}, max_tokens=6, temperature=1, seed=1)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert content(answer).startswith("{")
    assert len(api.chat(max_tokens=6, response_format={"type": "text"})["choices"]) == 1


def test_different_forms_in_one_batch_give_what_each_gives_alone(api: Live) -> None:
    forms: list[dict[str, Any]] = [
        {"response_format": schema_format(ORDERED)},
        {"structured_outputs": {"regex": "[a-z]{10}"}},
        {"structured_outputs": {"choice": ["left", "right"]}},
        {},
    ]
    bodies = [f | {"temperature": 1.5, "seed": i, "max_tokens": 60} for i in range(6) for f in forms]
    alone = [api.chat(**body) for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: api.chat(**body), bodies))
    for one, other in zip(alone, together, strict=True):
        assert one["choices"] == other["choices"]
        for name in ("output_tokens_sha256", "logprobs_sha256", "form_sha256"):
            assert one["samebits"][name] == other["samebits"][name]
    assert len({content(a) for a in alone}) > 10


@pytest.mark.parametrize(
    ("form", "param", "said"),
    [
        ({"response_format": {"type": "no_such_format"}}, "response_format.type", "no_such_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
        ({"response_format": schema_format(ORDERED, name="a b")}, "response_format.json_schema.name", "pattern"),
        (
            {"response_format": schema_format({"type": "array", "uniqueItems": True})},
            "response_format.json_schema.schema",
            "uniqueItems",
        ),
        ({"response_format": schema_format({"type": "nothing"})}, "response_format.json_schema.schema", "nothing"),
        (
            {"response_format": schema_format({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}})},
            "response_format.json_schema.schema",
            "no base case",
        ),
        (
            {
                "response_format": schema_format(
                    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
                )
            },
            "response_format.json_schema.schema",
            "no base case",
        ),
        (
            {"response_format": schema_format({"type": "integer", "maximum": 2.0**63})},
            "response_format.json_schema.schema",
            "integer",
        ),
        ({"structured_outputs": {}}, "structured_outputs", "one of"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "one of"),
        ({"structured_outputs": {"regex": "(" * 500}}, "structured_outputs.regex", ""),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", ""),
        ({"structured_outputs": {"grammar": "start: nothing"}}, "structured_outputs.grammar", ""),
        ({"structured_outputs": {"ebnf": "x"}}, "structured_outputs.ebnf", "not a known"),
        (
            {"response_format": {"type": "text"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "response_format",
        ),
        ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "ignore_eos", ""),
        ({"structured_outputs": {"regex": "a"}, "use_beam_search": True}, "structured_outputs", "beam"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(api: Live, form: Any, param: str, said: str) -> None:
    error = api.refused(CHAT, messages=[USER], **form)
    assert error["param"] == param
    assert said in error["message"]
    assert api.chat(max_tokens=1)


def test_deep_schemas(api: Live) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"], "additionalProperties": False}
    error = api.refused(CHAT, messages=[USER], response_format=schema_format(deep))
    assert "levels" in error["message"]
    deep = {"type": "string"}
    for _ in range(55):  # as a body it is within the bounds
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"], "additionalProperties": False}
    error = api.refused(CHAT, messages=[USER], response_format=schema_format(deep))
    assert error["param"] == "response_format.json_schema.schema"
    assert "100 levels" in error["message"]
    nested = '{"type":"object","properties":{"a":' * 2000 + '{"type":"string"}' + "}}" * 2000
    body = f'{{"model":"{NAME}","messages":[{json.dumps(USER)}],"response_format":' + (
        f'{{"type":"json_schema","json_schema":{{"name":"x","schema":{nested}}}}}}}'
    )
    response = api.http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert api.chat(max_tokens=1)


def test_a_list_that_refers_to_itself(api: Live) -> None:
    node = {
        "type": "object",
        "properties": {"v": {"enum": [1]}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
        "required": ["v", "next"],
        "additionalProperties": False,
    }
    schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    answer = api.chat(response_format=schema_format(schema), temperature=1, seed=2)
    value = json.loads(content(answer))
    assert value["v"] == 1


def test_what_only_the_judge_can_see_is_judged(script: Any) -> None:
    """With strict false a keyword is left to the validator, which then refuses the answer instead of handing it out."""
    schema = {"type": "array", "items": {"enum": [1]}, "minItems": 2, "maxItems": 2, "uniqueItems": True}
    server: Live = script(b"[1,1]", "Hi")
    body = {"prompt": "Hi", "response_format": schema_format(schema, strict=False)}
    error = server.refused(COMPLETIONS, **body)
    assert error["code"] == "output_invalid"
    with server.http.stream("POST", COMPLETIONS, json={"model": NAME, "stream": True} | body) as response:
        *_, last = (line for line in response.iter_lines() if line)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "output_invalid"


def test_parse_of_openai(api: Live) -> None:
    openai = pytest.importorskip("openai", reason="the extra 'clients' is not installed")
    from pydantic import BaseModel

    class Note(BaseModel):
        pitch: int
        loud: bool

    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none") as client:
        answer = client.chat.completions.parse(
            model=NAME, messages=[USER], response_format=Note, temperature=1, seed=3, logit_bias={"125": 5}
        )
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, Note)
    assert answer.choices[0].finish_reason == "stop"


def test_a_parsed_message_can_be_sent_back(api: Live) -> None:
    """OpenAI's client leaves what it has parsed in the message."""
    said = {"role": "assistant", "content": '{"pitch": 1}'}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    called = {"role": "assistant", "tool_calls": [call]}
    with_parsed = call | {"function": call["function"] | {"parsed_arguments": {"x": 1}}}
    for plain, parsed in (
        (said, said | {"parsed": {"pitch": 1}}),
        (called, called | {"tool_calls": [with_parsed]}),
    ):
        digests = [
            api.chat(messages=[USER, message, USER], max_tokens=1)["samebits"]["prompt_tokens_sha256"]
            for message in (plain, parsed)
        ]
        assert digests[0] == digests[1]
    error = api.refused("/v1/chat/completions", messages=[USER, said | {"parse": 1}])
    assert error["code"] == "unknown_parameter"


def test_instructor_with_a_schema(api: Live) -> None:
    instructor = pytest.importorskip("instructor", reason="the extra 'clients' is not installed")
    openai = pytest.importorskip("openai", reason="the extra 'clients' is not installed")
    from pydantic import BaseModel, ConfigDict

    class Answer(BaseModel):
        model_config = ConfigDict(extra="forbid")
        loud: bool

    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none") as client:
        patched = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
        answer = patched.chat.completions.create(model=NAME, messages=[USER], response_model=Answer, max_retries=0)
    assert isinstance(answer.loud, bool)


def test_langchain_with_a_schema(api: Live) -> None:
    langchain = pytest.importorskip("langchain_openai", reason="the extra 'clients' is not installed")
    from pydantic import BaseModel

    class Answer(BaseModel):
        loud: bool

    chat = langchain.ChatOpenAI(base_url=f"{api.url}/v1", api_key="none", model=NAME)
    answer = chat.with_structured_output(Answer, method="json_schema").invoke("Hi")
    assert isinstance(answer.loud, bool)
