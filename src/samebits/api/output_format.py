"""What the text of an answer must be: from a request's format to a constraint, and the judgement at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from samebits.api.schema_common import Sampling
from samebits.api.schema_format import SchemaFormat, StructuredOutputs
from samebits.api.served import Served
from samebits.engine import Completion
from samebits.errors import InputError
from samebits.structured import (
    Choice,
    Framed,
    Grammar,
    JsonObject,
    JsonSchema,
    Lark,
    Regex,
    StructuredSpec,
    validate,
)


@dataclass(frozen=True)
class Form:
    """A specification, and the field of the request that it came from."""

    spec: StructuredSpec
    field: str


def form_of(body: Sampling) -> Form | None:
    """What a request on the older routes wants its answers to be; None for any text.

    Raises:
        InputError: more than one form, or one that is wrong in itself.
    """
    wanted, other = body.response_format, body.structured_outputs
    if wanted is not None and other is not None:
        raise InputError("does not go with response_format", field="structured_outputs", remedy="Give one of them.")
    if isinstance(wanted, SchemaFormat):
        named, field = wanted.json_schema, "response_format.json_schema.schema"
        return Form(schema_spec(named.json_schema, named.strict, field), field)
    if wanted is not None and wanted.type == "json_object":
        return Form(JsonObject(), "response_format")
    return None if other is None else _other_form(other)


def _other_form(wanted: StructuredOutputs) -> Form:
    makers: dict[str, tuple[Any, Callable[[Any], StructuredSpec]]] = {
        "json": (wanted.json_schema, JsonSchema.of),
        "regex": (wanted.regex, Regex),
        "choice": (wanted.choice, lambda options: Choice(tuple(options))),
        "grammar": (wanted.grammar, Lark),
    }
    given = [name for name, (value, _) in makers.items() if value is not None]
    if len(given) != 1:
        raise InputError(
            f"has {' and '.join(given) or 'none of them'}",
            field="structured_outputs",
            remedy=f"Give exactly one of: {', '.join(makers)}.",
        )
    field = f"structured_outputs.{given[0]}"
    value, make = makers[given[0]]
    if given[0] == "json":
        return Form(schema_spec(value, True, field), field)
    with renamed(field):
        return Form(make(value), field)


def check_form(form: Form | None, *, tools: bool, beams: bool) -> None:
    """Refuses what a form does not go with.

    Raises:
        InputError: there are tools, or beams.
    """
    if form is None:
        return
    name = form.field.partition(".")[0]
    if tools:
        raise InputError(
            "does not go with tools: it would let no call be made",
            field=name,
            remedy='Leave one of them out, or set tool_choice to "none".',
        )
    if beams:
        raise InputError("does not go with use_beam_search", field=name, remedy="Leave one of them out.")


def schema_spec(schema: Mapping[str, Any], strict: bool | None, field: str) -> JsonSchema:
    """The specification of a schema. ``strict`` is the default: what cannot be enforced is refused.

    Raises:
        InputError: it is no schema; names ``field``.
    """
    with renamed(field):
        spec = JsonSchema.of(schema, strict=strict is not False)
    if (number := _rounded(schema)) is not None:
        raise InputError(
            f"{number!r} was read as a float, which may not be what was written",
            field=field,
            remedy="Write it as an integer, without a point and an exponent.",
        )
    return spec


def _rounded(value: Any) -> float | None:
    """A float so large that integers near it have no float of their own: its digits are not certain.

    Requires a depth that ``JsonSchema.of`` has checked.
    """
    if isinstance(value, float):
        return value if abs(value) >= 2**53 else None
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for part in parts if (found := _rounded(part)) is not None), None)


@contextlib.contextmanager
def renamed(field: str) -> Iterator[None]:
    """What is raised inside is about ``field``."""
    try:
        yield
    except InputError as error:
        raise InputError(error.message, field=field, remedy=error.remedy) from error


async def compiled(served: Served, spec: StructuredSpec | Framed, field: str) -> Grammar:
    """The grammar of a specification. It is compiled in a thread: that can take a second.

    Raises:
        InputError: it cannot be enforced; names ``field``, and the keyword and its place.
    """
    with renamed(field):
        return await asyncio.to_thread(served.llm.grammars.compile, spec)


def judge(completion: Completion, spec: StructuredSpec | None) -> None:
    """Returns where an answer is what was asked for, or was cut: then it is incomplete, and says so itself.

    Raises:
        OutputInvalid: it is not, which only a format with ``strict: false`` lets happen.
    """
    if spec is not None and completion.finish_reason == "stop":
        validate(completion.text, spec)
