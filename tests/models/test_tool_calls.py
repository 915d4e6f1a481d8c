"""Tools in prompts: recognised dialects, the plain form, and that nothing is sorted on the way."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pytest

from samebits.errors import InputError
from samebits.models import ChatTemplate, ModelSource, tool_calls
from samebits.models.tool_calls import (
    HERMES,
    LLAMA,
    MISTRAL,
    digest_of_text_form,
    recognise,
    with_tools_in_text,
)

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"zulu": {}, "alpha": {}, "mike": {}}},
        "description": "Says how the weather is.",
    },
}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"zulu": 1, "alpha": "é"}}}
CALL_TEXT = '<tool_call>\n{"name": "weather", "arguments": {"zulu": 1, "alpha": "é"}}\n</tool_call>'
HI = {"role": "user", "content": "Hi"}
# Small templates in the manner of each family: what the recognition looks at is what the real ones cannot do without.
TEMPLATES = {
    "hermes": """{% for tool in tools %}{{ tool | tojson }}{% endfor %}
        {% for m in messages %}{% for call in m.tool_calls %}<tool_call>{"name": "{{ call.function.name }}",
        "arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}{{ m.content }}{% endfor %}""",
    "mistral": """{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
        {% for m in messages %}{% if m.tool_calls %}[TOOL_CALLS]{{ m.tool_calls | tojson }}{% endif %}{% endfor %}""",
    "llama": """{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% for m in messages %}{% if m.tool_calls %}
        {{ '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}{% endif %}{% endfor %}""",
    "xml": "{% for tool in tools %}{{ tool }}{% endfor %}<tool_call><function=name></function></tool_call>",
    "mistral 7": "{{ tools }}[TOOL_CALLS]name[ARGS]{}",
    "other": "{{ tools }}<function_calls>",
    "none": "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
    "tools as a loop variable": "{% for tools in messages %}{{ tools.content }}{% endfor %}",
}


def render(source: str, messages: list[Any], tools: list[Any]) -> str:
    date = datetime.date(2024, 7, 26)
    template = ChatTemplate(source, "template")
    return template.render(messages, special_tokens={}, date=date, add_generation_prompt=True, tools=tools)


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("hermes", HERMES),
        ("mistral", MISTRAL),
        ("llama", LLAMA),
        ("xml", None),
        ("mistral 7", None),
        ("other", None),
        ("none", HERMES),
        ("tools as a loop variable", HERMES),
    ],
)
def test_the_template_decides_the_dialect(name: str, dialect: Any) -> None:
    template = ChatTemplate(TEMPLATES[name], "template")
    assert template.tool_dialect is dialect
    assert template.takes_tools == (name not in ("none", "tools as a loop variable"))
    if template.takes_tools:
        assert recognise(TEMPLATES[name]) is dialect


def test_a_template_that_takes_tools_gets_them_as_given() -> None:
    tools = [TOOL | {"function": TOOL["function"] | {"name": name}} for name in ("zulu", "alpha", "mike")]
    text = render(TEMPLATES["hermes"], [HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}], tools)
    assert [text.index(json.dumps(tool)) for tool in tools] == sorted(text.index(json.dumps(t)) for t in tools)
    assert '"arguments": {"zulu": 1, "alpha": "é"}' in text
    assert "<tools>" not in text


def test_the_order_of_tools_and_of_keys_is_kept() -> None:
    names = ["zulu", "alpha", "mike"]
    tools = [TOOL | {"function": TOOL["function"] | {"name": name}} for name in names]
    for source in (TEMPLATES["hermes"], TEMPLATES["none"]):
        text = render(source, [HI], tools)
        lines = [text.index(f'"name": "{name}"') for name in names]
        assert lines == sorted(lines)
        assert '"properties": {"zulu": {}, "alpha": {}, "mike": {}}' in text
        assert render(source, [HI], tools[::-1]) != text, "control: another order is another prompt"


def test_the_plain_form_golden() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        HI,
        {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "sun", "tool_call_id": "abcdefghi", "name": "weather"},
        {"role": "tool", "content": "rain", "tool_call_id": "abcdefghi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "snow"},
    ]
    instruction = (
        "You can call these functions. Each line describes one in JSON:\n<tools>\n"
        + json.dumps(TOOL)
        + "\n</tools>\nTo call a function, answer with nothing but its name and its arguments, as JSON between tags:\n"
        '<tool_call>\n{"name": "the name", "arguments": {"an argument": "its value"}}\n</tool_call>\n'
        "Results come back between <tool_response> and </tool_response>."
    )
    expected = [
        ("system", "Be brief.\n\n" + instruction),
        ("user", "Hi"),
        ("assistant", f"Let me look.\n{CALL_TEXT}\n{CALL_TEXT}"),
        ("user", "<tool_response>\nsun\n</tool_response>\n<tool_response>\nrain\n</tool_response>"),
        ("assistant", CALL_TEXT),
        ("user", "<tool_response>\nsnow\n</tool_response>"),
    ]
    assert [(m["role"], m["content"]) for m in with_tools_in_text(messages, [TOOL])] == expected
    assert with_tools_in_text([HI], [TOOL]) == [{"role": "system", "content": instruction}, HI]
    assert render(TEMPLATES["none"], messages, [TOOL]) == "".join(f"[{role}]{text}" for role, text in expected)


def test_a_conversation_without_tools_is_left_as_it_is() -> None:
    messages = [HI, {"role": "assistant", "content": "<tool_call>"}, {"role": "user", "content": "{}"}]
    assert with_tools_in_text(messages, []) == messages


def test_smollm2_knows_no_tools(smollm2: ModelSource) -> None:
    tokenizer = smollm2.tokenizer
    assert tokenizer.tool_dialect is HERMES
    text = tokenizer.apply_chat_template([HI], tools=[TOOL])
    assert text.startswith("<|im_start|>system\nYou can call these functions.")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert "SmolLM" not in text
    assert tokenizer.apply_chat_template([HI]) == tokenizer.apply_chat_template([HI], tools=[])


def test_the_digest_follows_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    known = digest_of_text_form()
    assert known == digest_of_text_form()
    monkeypatch.setattr(tool_calls, "_INSTRUCTION", "Call {tools}.")
    assert digest_of_text_form() != known


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "assistant", "content": None}, r"messages\[0\].content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, r"messages\[0\].content"),
        ({"role": "assistant", "content": "", "tool_calls": []}, r"messages\[0\].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, r"messages\[0\].tool_calls\[0\]"),
        ({"role": "assistant", "tool_calls": [CALL, {"function": {"name": "f"}}]}, r"calls\[1\].function.arguments"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, "function.arguments"),
        ({"role": "user", "content": "Hi", "tool_calls": [CALL]}, "unknown key 'tool_calls'"),
        ({"role": "tool", "content": None, "tool_call_id": "a"}, r"messages\[0\].content"),
        ({"role": "tool", "content": "a", "tool_call_id": 5}, r"messages\[0\].tool_call_id"),
    ],
)
def test_malformed_calls_are_named(message: Any, field: str) -> None:
    with pytest.raises(InputError, match=field):
        render(TEMPLATES["hermes"], [message], [])


ITSELF: dict[str, Any] = {}
ITSELF["a"] = ITSELF


@pytest.mark.parametrize("template", ["hermes", "none"])
@pytest.mark.parametrize("value", [object(), {1}, 10**5000, ITSELF], ids=["object", "set", "digits", "circle"])
def test_what_json_cannot_hold_is_refused_by_place(template: str, value: Any) -> None:
    call = {"function": {"name": "f", "arguments": {"x": value}}}
    with pytest.raises(InputError, match=r"^messages\[0\].tool_calls\[0\].function.arguments: holds what JSON cannot"):
        render(TEMPLATES[template], [{"role": "assistant", "tool_calls": [call]}], [])
    with pytest.raises(InputError, match=r"^tools: holds what JSON cannot"):
        render(TEMPLATES[template], [HI], [{"function": value}])


@pytest.mark.parametrize("tools", [5, None, "tool", {"name": "f"}, ["tool"], np.array([1, 2])], ids=repr)
def test_tools_that_are_no_list_of_objects_are_refused(tools: Any) -> None:
    with pytest.raises(InputError, match=r"^tools: is not a list of objects"):
        render(TEMPLATES["hermes"], [HI], tools)


def test_a_special_token_can_be_shown(smollm2: ModelSource) -> None:
    tokenizer = smollm2.tokenizer
    ids = tokenizer.encode("a<|im_start|>b")
    marker = tokenizer.special_id("<|im_start|>")
    assert marker in ids
    assert tokenizer.special_id("a") is None
    assert tokenizer.special_id("no such token") is None
    for shown, text in (((), "ab"), ((marker,), "a<|im_start|>b")):
        stream = tokenizer.stream([i for i in shown if i is not None])
        assert "".join(map(stream.push, ids)) + stream.finish() == text
