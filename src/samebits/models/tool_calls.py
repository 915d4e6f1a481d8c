"""Tools in prompts: the form in which a model writes its calls, and a prompt for templates that know no tools.

Both are decided by the text of the chat template alone, so they are part of what its digest covers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from samebits.numerics import digest_json


@dataclass(frozen=True)
class Dialect:
    """How calls stand in an answer.

    Attributes:
        name: what it is called.
        layout: ``tags``: each call between ``opening`` and ``closing``; ``array``: ``opening`` and one JSON array;
            ``objects``: JSON objects from the first character on, with ``;`` between them.
        arguments: the key of the arguments beside ``name``.
        optional: keys that may stand beside the two, and say nothing.
        opening: the text that announces calls; it may be a special token.
        closing: the text after each call.
    """

    name: str
    layout: Literal["tags", "array", "objects"]
    arguments: str
    opening: str = ""
    closing: str = ""
    optional: frozenset[str] = frozenset()


HERMES: Final = Dialect("hermes", "tags", "arguments", opening="<tool_call>", closing="</tool_call>")
MISTRAL: Final = Dialect("mistral", "array", "arguments", opening="[TOOL_CALLS]", optional=frozenset({"id"}))
LLAMA: Final = Dialect("llama", "objects", "parameters")

# The dialect of a template that takes tools: the first that has all of the texts and none of the others. What must be
# absent belongs to forms that begin alike and go on otherwise (Qwen3-Coder, GLM, Mistral from tokenizer version 7).
_RECOGNISED: Final[tuple[tuple[Dialect, tuple[str, ...], tuple[str, ...]], ...]] = (
    (HERMES, ("<tool_call>", "</tool_call>", '"arguments"'), ("<function=", "<arg_key>")),
    (MISTRAL, ("[TOOL_CALLS]",), ("[ARGS]", "[CALL_ID]")),
    (LLAMA, ('"parameters": ', "tool_call"), ("<tool_call>", "[TOOL_CALLS]")),
)


def recognise(template: str) -> Dialect | None:
    """The dialect of a chat template that takes tools; None where its form is not known here."""
    for dialect, present, absent in _RECOGNISED:
        if all(text in template for text in present) and not any(text in template for text in absent):
            return dialect
    return None


_INSTRUCTION: Final = """\
You can call these functions. Each line describes one in JSON:
<tools>
{tools}
</tools>
To call a function, answer with nothing but its name and its arguments, as JSON between tags:
<tool_call>
{{"name": "the name", "arguments": {{"an argument": "its value"}}}}
</tool_call>
Results come back between <tool_response> and </tool_response>."""


def with_tools_in_text(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The conversation in plain roles and texts, for a template that knows no tools.

    Tools are described at the end of the first message if that is the system's, else in a system message before it; a
    call becomes text of the assistant in the form of HERMES; the result of a tool becomes a user's message, and results
    that follow each other become one. Without tools, calls and results the messages come back as they are.
    """
    plain: list[Mapping[str, Any]] = []
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(f"<tool_response>\n{message['content']}\n</tool_response>")
            continue
        if results:
            plain.append({"role": "user", "content": "\n".join(results)})
            results = []
        calls = [_call_text(call) for call in message.get("tool_calls") or ()]
        if calls:
            said = [message["content"]] if message.get("content") else []
            message = {"role": message["role"], "content": "\n".join([*said, *calls])}
        plain.append(message)
    if results:
        plain.append({"role": "user", "content": "\n".join(results)})
    if not tools:
        return plain
    instruction = _INSTRUCTION.format(tools="\n".join(to_json(tool) for tool in tools))
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{instruction}"}, *plain[1:]]
    return [{"role": "system", "content": instruction}, *plain]


def _call_text(call: Mapping[str, Any]) -> str:
    function = call["function"]
    content = to_json({"name": function["name"], "arguments": function["arguments"]})
    return f"{HERMES.opening}\n{content}\n{HERMES.closing}"


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON as in Hugging Face's templates: keys in the order given, not escaped for HTML or ASCII."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def digest_of_text_form() -> str:
    """Digest of an example that has all there is in ``with_tools_in_text``: it changes when the form does."""
    call = {"function": {"name": "f", "arguments": {"x": 1}}}
    example: list[Mapping[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": [call, call]},
        {"role": "tool", "content": "c"},
        {"role": "tool", "content": "d"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "e"},
    ]
    tools = [{"type": "function"}, {"type": "function"}]
    with_system = [{"role": "system", "content": "g"}, *example]
    return digest_json([with_tools_in_text(messages, tools) for messages in (example, with_system)])
