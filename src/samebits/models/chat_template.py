"""Chat templates: Jinja in a sandbox, with the conventions of Hugging Face's templates and a pinned date."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from samebits.errors import InputError, ModelError

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
    ) -> str:
        """The prompt text of a conversation; see Tokenizer.apply_chat_template.

        Raises:
            InputError: a message is malformed, or the template refuses the conversation.
            ModelError: the template is not valid Jinja.
        """
        checked = [_checked_message(message, i) for i, message in enumerate(messages)]
        if not checked:
            raise InputError("is empty", field="messages", remedy="Send at least one message")
        midnight = datetime.datetime.combine(date, datetime.time())
        try:
            return self._compiled.render(
                **special_tokens,
                messages=checked,
                add_generation_prompt=add_generation_prompt,
                strftime_now=midnight.strftime,
                tools=None,
                documents=None,
            )
        except ModelError:
            raise
        except Exception as error:  # a template can raise whatever its expressions raise
            raise InputError(
                f"the model's chat template refuses them: {error}",
                field="messages",
                remedy="Follow the order of roles that the template expects",
            ) from error

    @cached_property
    def _compiled(self) -> jinja2.Template:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        try:
            return environment.from_string(self.source)
        except jinja2.TemplateError as error:
            raise ModelError(
                f"the chat template is not valid: {error}",
                field=self._where,
                remedy="Download the file again",
            ) from error


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's text for training; here it is
    transparent.
    """

    tags = {"generation"}  # noqa: RUF012  the base class declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _checked_message(message: object, index: int) -> dict[str, str]:
    field = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise InputError("is not an object", field=field, remedy="Give role and content")
    unknown = sorted(map(str, message.keys() - {"role", "content"}))
    if unknown:
        raise InputError(f"has the unknown key {unknown[0]!r}", field=field, remedy="Give role and content only")
    for key in ("role", "content"):
        if not isinstance(message.get(key), str):
            raise InputError("is missing or not text", field=f"{field}.{key}", remedy="Give it as a string")
    return {"role": message["role"], "content": message["content"]}


def _to_json(value: Any, indent: int | None = None) -> str:
    """Hugging Face's tojson: not escaped for HTML, unlike Jinja's own."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
