"""Items of a /v1/responses request as messages that chat templates know."""

from __future__ import annotations

from typing import Any

from samebits.api.conversation import read_arguments
from samebits.api.schema_responses import CallItem, Content, MessageItem, ResponseRequest, ResultItem
from samebits.errors import InputError


def messages_of(body: ResponseRequest) -> list[dict[str, Any]]:
    """The messages for ``Tokenizer.apply_chat_template``. Calls join the assistant's message that stands before them.

    Raises:
        InputError: a result without its call, or arguments that are no object; names the item.
    """
    messages: list[dict[str, Any]] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*messages, {"role": "user", "content": body.input}]
    called: dict[str, str] = {}  # by id of a call since the last message: the function's name
    for i, item in enumerate(body.input):
        match item:
            case MessageItem():
                role = "system" if item.role == "developer" else item.role
                messages.append({"role": role, "content": _text(item.content)})
                called = {}
            case CallItem():
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                arguments = read_arguments(item.arguments, f"input[{i}].arguments")
                call = {"id": item.call_id, "type": "function"}
                messages[-1].setdefault("tool_calls", []).append(
                    call | {"function": {"name": item.name, "arguments": arguments}}
                )
                called[item.call_id] = item.name
            case ResultItem():
                if item.call_id not in called:
                    raise InputError(
                        f"is {item.call_id!r:.80}, which no call before it has",
                        field=f"input[{i}].call_id",
                        remedy="Send the function_call items before the results.",
                    )
                messages.append(
                    {
                        "role": "tool",
                        "content": _text(item.output),
                        "tool_call_id": item.call_id,
                        "name": called[item.call_id],
                    }
                )
    return messages


def _text(content: Content) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
