"""Chat templates: Jinja in a sandbox, with the conventions of Hugging Face's templates and a pinned date."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from samebits.errors import InputError, ModelError
from samebits.models.tool_calls import HERMES, Dialect, recognise, to_json, with_tools_in_text

# What strftime_now says unless a request gives another date, so that the same messages give the same prompt
# tomorrow. It is the date that Llama 3's own template falls back on.
DEFAULT_DATE: Final = datetime.date(2024, 7, 26)


class ChatTemplate:
    """A template. It is compiled at first use.

    Attributes:
        source: the Jinja text.
    """

    def __init__(self, source: str, where: str) -> None:
        """Args: where: the file it came from, for messages."""
        self.source = source
        self._where = where

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        special_tokens: Mapping[str, str],
        date: datetime.date,
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The prompt text of a conversation; see Tokenizer.apply_chat_template.

        Raises:
            InputError: a message is malformed, or the template refuses the conversation.
            ModelError: the template is not valid Jinja.
        """
        checked: Sequence[Mapping[str, Any]] = [_checked_message(message, i) for i, message in enumerate(messages)]
        if not checked:
            raise InputError("is empty", field="messages", remedy="Send at least one message.")
        tools = _checked_tools(tools)
        if not self.takes_tools:
            checked, tools = with_tools_in_text(checked, tools), []
        midnight = datetime.datetime.combine(date, datetime.time())
        try:
            return self._compiled.render(
                **special_tokens,
                messages=checked,
                add_generation_prompt=add_generation_prompt,
                strftime_now=midnight.strftime,
                tools=tools or None,
                documents=None,
            )
        except ModelError:
            raise
        except Exception as error:  # a template can raise whatever its expressions raise
            raise InputError(
                f"the model's chat template refuses them: {error}",
                field="messages",
                remedy="Follow the order of roles that the template expects.",
            ) from error

    @cached_property
    def takes_tools(self) -> bool:
        """Whether the template puts tools into the prompt; otherwise ``with_tools_in_text`` does.

        Raises:
            ModelError: the template is not valid Jinja.
        """
        with self._explained():
            return "tools" in jinja2.meta.find_undeclared_variables(self._environment.parse(self.source))

    @property
    def tool_dialect(self) -> Dialect | None:
        """The form of calls that the prompt shows to the model; None where the template has one not known here."""
        return recognise(self.source) if self.takes_tools else HERMES

    @cached_property
    def _environment(self) -> jinja2.Environment:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = _raise_exception
        return environment

    @cached_property
    def _compiled(self) -> jinja2.Template:
        with self._explained():
            return self._environment.from_string(self.source)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # one that is nested too deeply, or holds a huge number, is no TemplateError
            raise ModelError(
                f"the chat template is not valid: {error}",
                field=self._where,
                remedy="Download the file again.",
            ) from error


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's text for training; here it is
    transparent.
    """

    tags = {"generation"}  # noqa: RUF012  the base class declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


# What a message may have beside its role and content.
_OTHER_KEYS: Final = {"assistant": {"tool_calls"}, "tool": {"tool_call_id", "name"}}


def _checked_message(message: object, index: int) -> dict[str, Any]:
    field = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise InputError("is not an object", field=field, remedy="Give role and content.")
    role = message.get("role")
    if not isinstance(role, str):
        raise _not_text(f"{field}.role")
    known = {"role", "content"} | _OTHER_KEYS.get(role, set())
    unknown = sorted(map(str, message.keys() - known))
    if unknown:
        remedy = f"Give {', '.join([*sorted(known - {'role', 'content'}), 'role'])} and content only."
        raise InputError(f"has the unknown key {unknown[0]!r}", field=field, remedy=remedy)
    checked: dict[str, Any] = {"role": role, "content": message.get("content")}
    calls = message.get("tool_calls")
    if not isinstance(checked["content"], str) and (checked["content"] is not None or not calls):
        raise _not_text(f"{field}.content")
    if calls is not None:
        checked["tool_calls"] = _checked_calls(calls, f"{field}.tool_calls")
    for key in ("tool_call_id", "name"):
        if key in message:
            if not isinstance(message[key], str):
                raise _not_text(f"{field}.{key}")
            checked[key] = message[key]
    return checked


def _checked_calls(calls: object, field: str) -> list[Mapping[str, Any]]:
    if not isinstance(calls, list | tuple) or not calls:
        raise InputError("is not a list of calls", field=field, remedy="Give at least one call, or leave it out.")
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InputError("names no function", field=f"{field}[{i}]", remedy="Give function.name and arguments.")
        arguments = f"{field}[{i}].function.arguments"
        if not isinstance(function.get("arguments"), Mapping):
            raise InputError("is not an object", field=arguments, remedy="Give names and values.")
        _check_json(function["arguments"], arguments)
    return list(calls)


def _checked_tools(tools: object) -> list[Mapping[str, Any]]:
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Mapping) for tool in tools):
        raise InputError("is not a list of objects", field="tools", remedy="Give descriptions as in OpenAI's API.")
    _check_json(tools, "tools")
    return list(tools)


def _check_json(value: object, field: str) -> None:
    """Raises InputError for what ``to_json`` could not write into a prompt."""
    try:
        to_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"holds what JSON cannot: {error}", field=field, remedy="Give plain JSON values.") from error


def _not_text(field: str) -> InputError:
    return InputError("is missing or not text", field=field, remedy="Give it as a string.")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
