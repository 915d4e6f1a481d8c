"""Messages of a request as chat templates know them; a result is matched with the call that it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from samebits.api.errors import MissingFieldError
from samebits.api.schema_chat import Message
from samebits.api.schema_tools import ToolCall
from samebits.errors import InputError
from samebits.gateway.json_body import read_json
from samebits.structured.json_text import JsonTextError, check_depth

MOST_DEPTH: Final = 100  # levels of arguments; also the most of a schema
_REMEDY: Final = "Send the arguments as they came."


def conversation(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages for ``Tokenizer.apply_chat_template``. ``developer`` is OpenAI's newer name of ``system``.

    Raises:
        InputError: a message lacks what its role needs or has what it cannot have; names the field.
    """
    rendered: list[dict[str, Any]] = []
    called: dict[str, str] = {}  # by id of a call in the last message of the assistant: the function's name
    for i, message in enumerate(messages):
        field = f"messages[{i}]"
        role = "system" if message.role == "developer" else message.role
        entry: dict[str, Any] = {"role": role, "content": message.text}
        if message.content is None and not (role == "assistant" and message.tool_calls):
            if "content" in message.model_fields_set:
                raise InputError("is null", field=f"{field}.content", remedy="Give a text.")
            raise MissingFieldError("is missing", field=f"{field}.content", remedy="Give a text.")
        if message.tool_calls is not None:
            if role != "assistant" or not message.tool_calls:
                raise InputError(
                    "is for calls of the assistant", field=f"{field}.tool_calls", remedy="Leave it out elsewhere."
                )
            entry["tool_calls"] = [
                _rendered(call, f"{field}.tool_calls[{j}]") for j, call in enumerate(message.tool_calls)
            ]
        if role == "tool" and message.tool_call_id is None:
            raise MissingFieldError("is missing", field=f"{field}.tool_call_id", remedy="Name the call it answers.")
        if role != "tool" and message.tool_call_id is not None:
            raise InputError("is for results of tools", field=f"{field}.tool_call_id", remedy="Leave it out.")
        if message.tool_call_id is not None:
            if message.tool_call_id not in called:
                raise InputError(
                    f"is {message.tool_call_id!r:.80}, which the assistant's last message did not call",
                    field=f"{field}.tool_call_id",
                    remedy="Send that message with its tool_calls before the results.",
                )
            entry |= {"tool_call_id": message.tool_call_id, "name": called[message.tool_call_id]}
        elif role == "assistant":
            called = {call.id: call.function.name for call in message.tool_calls or ()}
        rendered.append(entry)
    return rendered


def _rendered(call: ToolCall, field: str) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {
            "name": call.function.name,
            "arguments": read_arguments(call.function.arguments, f"{field}.function.arguments"),
        },
    }


def read_arguments(text: str, field: str) -> Mapping[str, Any]:
    """The arguments of a call as values, which is what templates want.

    Raises:
        InputError: they are no JSON object, nested too deeply, or hold a number beyond binary64.
    """
    try:
        check_depth(text, MOST_DEPTH)
        value = read_json(text.encode("utf-8", "surrogatepass"))
        json.dumps(value, allow_nan=False)
    except InputError as error:
        raise InputError(error.message, field=field, remedy=_REMEDY) from error
    except ValueError as error:
        reason = str(error) if isinstance(error, JsonTextError) else "holds a number beyond binary64"
        raise InputError(reason, field=field, remedy=_REMEDY) from error
    if not isinstance(value, dict):
        raise InputError("is not a JSON object", field=field, remedy=_REMEDY)
    return value
