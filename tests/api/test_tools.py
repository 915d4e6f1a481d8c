"""Tools of a request, and calls read from an answer: pure functions, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.api.schema_tools import NamedChoice, Tool
from samebits.api.tool_reader import Ending, ToolReader
from samebits.api.tools import Call, CallError, Toolbox, call_id, forced_form, read_calls, toolbox_of
from samebits.errors import InputError
from samebits.models.tool_calls import HERMES, LLAMA, MISTRAL, Dialect
from samebits.structured import validate
from samebits.structured.spec import spec_digest

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}


def tool(name: str = "weather", **function: Any) -> Tool:
    return Tool.model_validate(
        {"type": "function", "function": {"name": name, "parameters": PARAMETERS} | function}, strict=True
    )


TOOLS = [tool(), tool("now", parameters=None), tool("say", parameters={"type": "object"})]
DIALECTS = [HERMES, MISTRAL, LLAMA]


def toolbox(dialect: Dialect = HERMES, choice: Any = None, parallel: bool | None = None) -> Toolbox:
    box = toolbox_of(TOOLS, choice, parallel, dialect)
    assert box is not None
    return box


def written(dialect: Dialect, *calls: tuple[str, str]) -> str:
    """Calls as a model of that dialect writes them."""
    texts = [f'{{"name": "{name}", "{dialect.arguments}": {arguments}}}' for name, arguments in calls]
    if dialect.layout == "tags":
        return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts)
    if dialect.layout == "array":
        return f"[TOOL_CALLS] [{', '.join(texts)}]"
    return "; ".join(texts)


# ---- from the request ------------------------------------------------------------------------------------------------


def test_a_tool_is_kept_as_it_is_sent() -> None:
    sent = {"function": {"parameters": {"zulu": 1, "alpha": {}}, "name": "f", "description": None}, "type": "function"}
    kept = Tool.model_validate(sent).sent
    assert kept == sent
    assert list(kept) == list(sent)
    assert list(kept["function"]) == ["parameters", "name", "description"]


def test_choices() -> None:
    assert toolbox().forced == ()
    assert toolbox(choice="auto").forced == ()
    assert toolbox(choice="required").forced == ("weather", "now", "say")
    named = NamedChoice.model_validate({"type": "function", "function": {"name": "now"}})
    assert toolbox(choice=named).forced == ("now",)
    assert toolbox_of(TOOLS, "none", None, HERMES) is None
    assert toolbox_of(TOOLS, "none", None, None) is None, "a form that is not known does not matter here"
    assert toolbox_of(None, None, None, None) is None
    assert [t["function"]["name"] for t in toolbox().sent] == ["weather", "now", "say"]


@pytest.mark.parametrize(
    ("tools", "choice", "parallel", "dialect", "field"),
    [
        (None, "auto", None, HERMES, "tool_choice"),
        (None, None, True, HERMES, "parallel_tool_calls"),
        ([], None, None, HERMES, "tools"),
        ([tool(), tool()], None, None, HERMES, "tools[1].function.name"),
        ([tool(f"f{i}") for i in range(129)], None, None, HERMES, "tools"),
        ([tool()], {"type": "function", "function": {"name": "x"}}, None, HERMES, "tool_choice.function.name"),
        ([tool()], None, None, None, "tools"),
        ([tool(), tool("g", parameters={"type": 5})], None, None, HERMES, "tools[1].function.parameters"),
        ([tool(parameters={"$ref": "https://example.org/x"})], None, None, HERMES, "tools[0].function.parameters"),
    ],
)
def test_what_is_wrong_is_named(tools: Any, choice: Any, parallel: Any, dialect: Any, field: str) -> None:
    if isinstance(choice, dict):
        choice = NamedChoice.model_validate(choice)
    with pytest.raises(InputError) as caught:
        toolbox_of(tools, choice, parallel, dialect)
    assert caught.value.field == field


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(2000):
        schema = {"properties": {"a": schema}}
    with pytest.raises(InputError, match="nested"):
        toolbox_of([tool(parameters=schema)], None, None, HERMES)


# ---- from the answer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_calls_come_out_as_they_were_written(dialect: Dialect) -> None:
    first, second = '{"days":  3, "city": "Z\\u00fcrich"}', "{}"
    text = written(dialect, ("weather", first), ("now", second))
    assert read_calls(text, toolbox(dialect)) == (Call("weather", first), Call("now", second))
    assert read_calls(f"\n {text} \n", toolbox(dialect)) == read_calls(text, toolbox(dialect))


def test_digits_are_not_lost() -> None:
    text = '{"x": 9007199254740993.0, "y": 1e400, "z": ' + "9" * 5000 + "}"
    [call] = read_calls(written(HERMES, ("say", text)), toolbox())
    assert call.arguments == text


GOOD = '{"name": "weather", "arguments": {"city": "x"}}'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"<tool_call>{GOOD}", "the end where '</tool_call>'"),
        (f"<tool_call>{GOOD}</tool_call> and more", "' and more' where|'and more' where"),
        (f"<tool_call>{GOOD}</tool_call><tool_call>", "the end where '{'"),
        (f"<tool_call>{GOOD[:-1]}</tool_call>", "where ','"),
        ("<tool_call>[]</tool_call>", "where '{'"),
        ('<tool_call>{"name": "weather"}</tool_call>', "without 'arguments'"),
        ('<tool_call>{"arguments": {}}</tool_call>', "without 'name'"),
        ('<tool_call>{"name": "weather", "parameters": {}}</tool_call>', "'parameters' in a call"),
        ('<tool_call>{"name": "now", "name": "now", "arguments": {}}</tool_call>', "'name' twice"),
        ('<tool_call>{"name": 5, "arguments": {}}</tool_call>', "5 is no name"),
        ('<tool_call>{"name": "nobody", "arguments": {}}</tool_call>', "'nobody' is no tool"),
        ('<tool_call>{"name": "now", "arguments": "{}"}</tool_call>', "are no object"),
        ('<tool_call>{"name": "now", "arguments": {"a": 1}}</tool_call>', "additionalProperties"),
        ('<tool_call>{"name": "weather", "arguments": {}}</tool_call>', "required"),
        ('<tool_call>{"name": "weather", "arguments": {"city": "x", "days": 0}}</tool_call>', "minimum"),
        ('<tool_call>{"name": "weather", "arguments": {"city": "x", "city": "y"}}</tool_call>', "twice"),
        ('<tool_call>{"name": "say", "arguments": {"a": NaN}}</tool_call>', "NaN"),
        ('<tool_call>{"name": "say", "arguments": {"a": \'b\'}}</tool_call>', "no JSON"),
        ('<tool_call>{"name": "say", "arguments": {"a": "\\ud800"}}</tool_call>', "surrogate"),
        ('<tool_call>{"name": "say", "arguments": ' + '{"a":' * 300 + "1" + "}" * 301 + "</tool_call>", "nested"),
        ('<tool_call>{"name": "say", "arguments": ' + "[" * 100_000, "nested"),
    ],
)
def test_what_is_no_call_is_said(content: str, said: str) -> None:
    with pytest.raises(CallError, match=said):
        read_calls(content, toolbox())


def test_one_call_where_only_one_may_be() -> None:
    text = written(HERMES, ("now", "{}"), ("now", "{}"))
    assert len(read_calls(text, toolbox())) == 2
    with pytest.raises(CallError, match="parallel_tool_calls"):
        read_calls(text, toolbox(parallel=False))


def test_another_tool_than_the_one_named() -> None:
    named = NamedChoice.model_validate({"type": "function", "function": {"name": "now"}})
    with pytest.raises(CallError, match="was not to be called"):
        read_calls(written(HERMES, ("say", "{}")), toolbox(choice=named))


@given(st.text(alphabet='{}[]",:;\\ \nab1<>/TOL_CAS', max_size=60), st.sampled_from(DIALECTS))
def test_any_text_is_calls_or_none(text: str, dialect: Dialect) -> None:
    for content in (text, dialect.opening + text, written(dialect, ("say", text))):
        try:
            calls = read_calls(content, toolbox(dialect))
        except CallError:
            continue
        for call in calls:
            validate(call.arguments, toolbox(dialect).schemas[call.name])
            assert call.arguments in content


# ---- while it is written ---------------------------------------------------------------------------------------------


def read(box: Toolbox, pieces: list[str], reason: Any = "stop") -> tuple[str, Ending]:
    reader = ToolReader(box)
    shown = "".join(map(reader.push, pieces))
    return shown, reader.finish(reason)


TEXTS = [
    "",
    "  \n",
    "No call.",
    "a < b and <tool_ is no call",
    "<tool_cal",
    "Let me look.\n" + written(HERMES, ("now", "{}")),
    written(HERMES, ("now", "{}"), ("weather", '{"city": "x"}')),
    " \n" + written(HERMES, ("now", "{}")),
    "Look: <tool_call> is a tag.",
    "\n<tool_call>broken",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_pieces_make_no_difference(text: str, reason: str) -> None:
    whole = read(toolbox(), [text], reason)
    shown, ending = read(toolbox(), list(text), reason)
    assert shown + ending.text == whole[0] + whole[1].text
    assert (ending.calls, ending.error) == (whole[1].calls, whole[1].error)
    if not ending.calls:
        assert shown + ending.text == text, "what is not a call is the text as it was written"
    assert bool(ending.error) == ("<tool_call>" in text and not ending.calls)


def test_text_before_a_call_is_shown_at_once_and_the_call_is_not() -> None:
    reader = ToolReader(toolbox())
    assert reader.push("Let me look") == "Let me look"
    assert reader.push(".\n<tool") == ".\n"
    assert reader.push("box") == "<toolbox"
    assert reader.push('<tool_call>{"name": "now",') == ""
    assert reader.push(' "arguments": {}}</tool_call>') == ""
    assert reader.finish("stop") == Ending("", (Call("now", "{}"),))


def test_white_space_before_a_call_is_no_text() -> None:
    assert read(toolbox(), ["\n", " <tool_call>" + GOOD + "</tool_call>"])[0] == ""


def test_a_cut_answer_holds_no_call() -> None:
    shown, ending = read(toolbox(), [f"<tool_call>{GOOD}</tool_call>"], "length")
    assert (shown, ending.text) == ("", f"<tool_call>{GOOD}</tool_call>")
    assert ending.error is not None
    assert "max_tokens" in ending.error


def test_objects_begin_an_answer_or_are_text() -> None:
    box = toolbox(LLAMA)
    assert read(box, list(written(LLAMA, ("now", "{}"))))[1].calls == (Call("now", "{}"),)
    text = "Here: " + written(LLAMA, ("now", "{}"))
    assert read(box, list(text)) == (text, Ending(""))
    shown, ending = read(box, list('{"answer": 5}'))
    assert (shown, ending.text, ending.calls) == ("", '{"answer": 5}', ())
    assert ending.error == "'answer' in a call"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_a_demanded_call_begins_in_the_prompt(dialect: Dialect) -> None:
    text = written(dialect, ("now", "{}"))
    box = toolbox(dialect, "required")
    rest = text.removeprefix(dialect.opening)
    assert read(box, list(rest))[1] == Ending("", (Call("now", "{}"),))
    shown, ending = read(box, ["nonsense"])
    assert (shown, ending.text, bool(ending.error)) == ("", "nonsense", True)


def test_the_form_of_a_demanded_call_depends_on_what_is_demanded() -> None:
    forms = [forced_form(toolbox(dialect, "required", parallel)) for dialect in DIALECTS for parallel in (True, False)]
    assert len({spec_digest(form) for form in forms}) == 6


def test_ids_are_a_function_of_the_answer() -> None:
    call = Call("now", "{}")
    assert call_id("sha256:a", 0, 0, call) == call_id("sha256:a", 0, 0, call)
    others = [("sha256:b", 0, 0, call), ("sha256:a", 1, 0, call), ("sha256:a", 0, 1, call)]
    others += [("sha256:a", 0, 0, Call("say", "{}")), ("sha256:a", 0, 0, Call("now", "{ }"))]
    ids = {call_id("sha256:a", 0, 0, call), *(call_id(*other) for other in others)}
    assert len(ids) == 6
    assert all((len(i) == 9 and i.isalnum() and i.islower()) or i.isdigit() for i in ids)
