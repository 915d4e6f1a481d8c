"""Tools of a request, and calls in an answer: pure functions between the API's shapes and the model's text.

An answer either is calls or is text. It is calls when everything from the first call on follows the form that the model
was shown, every name is known, and every call's arguments satisfy the schema of its tool. Otherwise it is the text that
the model wrote, unchanged, with a note of what was wrong. Nothing is repaired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from samebits.api.schema_tools import MOST_TOOLS, NamedChoice, Tool
from samebits.errors import InputError, OutputInvalid
from samebits.models.tool_calls import Dialect
from samebits.numerics import digest_json
from samebits.structured import Frame, Framed, JsonSchema, validate
from samebits.structured.validate import check_pattern_sizes, pattern_sizes, validator_of

_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_SPACE: Final = re.compile(r"[ \t\r\n]*")
# Nine letters and digits: Mistral's templates take no other.
_ID_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_LENGTH: Final = 9


@dataclass(frozen=True)
class Toolbox:
    """The tools of one request.

    Attributes:
        dialect: the form of calls.
        schemas: of the arguments, by name, in the order given.
        forced: names of which one must be called; empty where text is an answer too.
        parallel: whether an answer may hold several calls.
        sent: the tools as they were sent, for the prompt.
    """

    dialect: Dialect
    schemas: Mapping[str, JsonSchema]
    forced: tuple[str, ...]
    parallel: bool
    sent: tuple[Mapping[str, Any], ...]

    @property
    def beginning(self) -> str:
        """What of the answer stands in the prompt: the opening of a call, where one is demanded."""
        return self.dialect.opening if self.forced else ""


@dataclass(frozen=True)
class Call:
    """A call as the model wrote it.

    Attributes:
        arguments: the JSON object, as text.
    """

    name: str
    arguments: str


class CallError(Exception):
    """A text that announces calls does not hold them."""


# ---- from the request ------------------------------------------------------------------------------------------------


def toolbox_of(
    tools: Sequence[Tool] | None,
    choice: str | NamedChoice | None,
    parallel: bool | None,
    dialect: Dialect | None,
    *,
    inside: str = "function.",
) -> Toolbox | None:
    """The tools of a request; None where there are none, or none may be called: then nothing of them is in the prompt.

    Args:
        dialect: what the model's chat template shows.
        inside: where in a tool its name and schema stand, for messages.

    Raises:
        InputError: names the field at fault.
    """
    if not tools:
        for name, value in (("tool_choice", choice), ("parallel_tool_calls", parallel)):
            if value is not None:
                raise InputError("needs tools", field=name, remedy="Give tools, or leave it out.")
        if tools is not None:
            raise InputError("is empty", field="tools", remedy="Give a tool, or leave it out.")
        return None
    if len(tools) > MOST_TOOLS:
        raise InputError(f"holds {len(tools)} tools", field="tools", remedy=f"Give at most {MOST_TOOLS}.")
    schemas: dict[str, JsonSchema] = {}
    size = 0
    for i, tool in enumerate(tools):
        name = tool.function.name
        if name in schemas:
            raise InputError(f"is {name!r} again", field=f"tools[{i}].{inside}name", remedy="Give each its own name.")
        field = f"tools[{i}].{inside}parameters"
        schemas[name] = _schema_of(tool, field)
        size += pattern_sizes(schemas[name])
        check_pattern_sizes(size, field)
        _check_schema(schemas[name], field)
    forced: tuple[str, ...] = ()
    if isinstance(choice, NamedChoice):
        if choice.function.name not in schemas:
            raise InputError(
                f"is {choice.function.name!r:.80}, which is no tool",
                field=f"tool_choice.{inside}name",
                remedy=f"Name one of: {', '.join(schemas)}.",
            )
        forced = (choice.function.name,)
    elif choice == "required":
        forced = tuple(schemas)
    if choice == "none":
        return None
    if dialect is None:
        raise InputError(
            "cannot be used: the model's chat template writes calls in a form that is not known here",
            field="tools",
            remedy='Use another model, or set tool_choice to "none".',
        )
    return Toolbox(dialect, schemas, forced, parallel is not False, tuple(tool.sent for tool in tools))


def _schema_of(tool: Tool, field: str) -> JsonSchema:
    given = tool.function.parameters
    try:
        return JsonSchema.of(_NO_PARAMETERS if given is None else given, strict=tool.function.strict is not False)
    except InputError as error:
        raise InputError(error.message, field=field, remedy=error.remedy) from error


def _check_schema(schema: JsonSchema, field: str) -> None:
    try:
        validator_of(schema)
    except InputError as error:
        raise InputError(error.message, field=field, remedy=error.remedy) from error


def forced_form(toolbox: Toolbox) -> Framed:
    """What an answer must be where a call is demanded: all that follows the opening, which ends the prompt then."""
    dialect = toolbox.dialect
    frames = tuple(
        Frame(
            f'{{"name": {json.dumps(name)}, "{dialect.arguments}": ',
            toolbox.schemas[name],
            f"}}\n{dialect.closing}" if dialect.layout == "tags" else "}",
        )
        for name in toolbox.forced
    )
    match dialect.layout:
        case "tags":
            return Framed(("\n",), frames, f"\n{dialect.opening}\n" if toolbox.parallel else None, "")
        case "array":  # templates differ in whether a space follows the opening
            return Framed(("[", " ["), frames, ", " if toolbox.parallel else None, "]")
        case "objects":
            return Framed(("",), frames, "; " if toolbox.parallel else None, "")


# ---- from the answer -------------------------------------------------------------------------------------------------


def read_calls(text: str, toolbox: Toolbox) -> tuple[Call, ...]:
    """The calls of a text that begins where they are announced.

    Raises:
        CallError: it does not follow the form, names no tool, or has arguments that are not valid.
    """
    try:
        calls = _read(text, toolbox.dialect)
    except RecursionError:
        raise CallError("the arguments are nested too deeply") from None
    if len(calls) > 1 and not toolbox.parallel:
        raise CallError(f"{len(calls)} calls where parallel_tool_calls is false")
    for call in calls:
        if call.name not in toolbox.schemas:
            raise CallError(f"{call.name!r:.80} is no tool")
        if toolbox.forced and call.name not in toolbox.forced:
            raise CallError(f"{call.name!r:.80} was not to be called")
        try:
            validate(call.arguments, toolbox.schemas[call.name])
        except OutputInvalid as error:
            raise CallError(f"the arguments of {call.name!r}: {error}") from error
    return tuple(calls)


def _read(text: str, dialect: Dialect) -> list[Call]:
    at = _skip(text, 0)
    calls = []
    match dialect.layout:
        case "tags":
            while at < len(text):
                at = _skip(text, _expect(text, at, dialect.opening))
                call, at = _read_call(text, at, dialect)
                at = _skip(text, _expect(text, _skip(text, at), dialect.closing))
                calls.append(call)
        case "array":
            at = _skip(text, _expect(text, at, dialect.opening))
            at = _expect(text, at, "[")
            calls, at = _read_list(text, at, ",", dialect)
            at = _skip(text, _expect(text, at, "]"))
        case "objects":
            calls, at = _read_list(text, at, ";", dialect)
    if at < len(text):
        raise CallError(f"{text[at : at + 40]!r} where the answer should end")
    return calls


def _read_list(text: str, at: int, separator: str, dialect: Dialect) -> tuple[list[Call], int]:
    calls: list[Call] = []
    while True:
        call, at = _read_call(text, _skip(text, at), dialect)
        calls.append(call)
        at = _skip(text, at)
        if not text.startswith(separator, at):
            return calls, at
        at += len(separator)


def _read_call(text: str, at: int, dialect: Dialect) -> tuple[Call, int]:
    """One call, an object with a name and arguments, and where it ends."""
    parts: dict[str, str] = {}
    at = _skip(text, _expect(text, at, "{"))
    while not text.startswith("}", at):
        if parts:
            at = _skip(text, _expect(text, at, ","))
        key, at = _value(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        value, end = _value(text, at)
        if not isinstance(key, str) or key not in {"name", dialect.arguments} | dialect.optional:
            raise CallError(f"{key!r:.80} in a call")
        if key in parts:
            raise CallError(f"{key!r} twice in a call")
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise CallError(f"a lone surrogate, which is no Unicode text, in {key!r}") from None
        parts[key] = text[at:end]
        at = _skip(text, end)
    at += 1
    for key in ("name", dialect.arguments):
        if key not in parts:
            raise CallError(f"a call without {key!r}")
    name, arguments = json.loads(parts["name"]), parts[dialect.arguments]
    if not isinstance(name, str):
        raise CallError(f"{parts['name']:.80} is no name")
    if not arguments.startswith("{"):
        raise CallError(f"the arguments of {name!r:.80} are no object")
    return Call(name, arguments), at


def _constant(name: str) -> NoReturn:
    raise CallError(f"{name} is not JSON")


# Numbers stay text here: where a value ends is what is asked, and digits are not to be lost.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_constant)


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise CallError(f"no JSON at character {error.pos}: {error.msg}") from error


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "it matches nothing as well"
    return found.end()


def _expect(text: str, at: int, wanted: str) -> int:
    if not text.startswith(wanted, at):
        found = repr(text[at : at + 40]) if at < len(text) else "the end"
        raise CallError(f"{found} where {wanted!r} should stand")
    return at + len(wanted)


def call_id(prompt_digest: str, choice: int, index: int, call: Call) -> str:
    """The id of a call: a digest of prompt, place and content, so that equal answers have equal ids."""
    digest = digest_json([prompt_digest, choice, index, call.name, call.arguments])
    number = int(digest.removeprefix("sha256:"), 16)
    letters = []
    for _ in range(_ID_LENGTH):
        number, letter = divmod(number, len(_ID_ALPHABET))
        letters.append(_ID_ALPHABET[letter])
    return "".join(letters)
