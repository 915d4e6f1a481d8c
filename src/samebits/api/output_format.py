"""What the text of an answer must be: from a request's format to a constraint, and the judgement at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from samebits.api.served import Served
from samebits.engine import Completion, Constraint
from samebits.errors import InputError
from samebits.structured import Framed, JsonSchema, StructuredSpec, validate


def schema_spec(schema: Mapping[str, Any], strict: bool | None, field: str) -> JsonSchema:
    """The specification of a schema. ``strict`` is the default: what cannot be enforced is refused.

    Raises:
        InputError: it is no schema; names ``field``.
    """
    try:
        return JsonSchema.of(schema, strict=strict is not False)
    except InputError as error:
        raise InputError(error.message, field=field, remedy=error.remedy) from error


async def compiled(served: Served, spec: StructuredSpec | Framed, field: str) -> Constraint:
    """The constraint of a specification. It is compiled in a thread: that can take a second.

    Raises:
        InputError: it cannot be enforced; names ``field``, and the keyword and its place.
    """
    try:
        grammar = await asyncio.to_thread(lambda: served.llm.grammars.compile(spec))
    except InputError as error:
        raise InputError(error.message, field=field, remedy=error.remedy) from error
    return grammar.constraint()


def judge(completion: Completion, spec: StructuredSpec | None) -> None:
    """Returns where an answer is what was asked for, or was cut: then it is incomplete, and says so itself.

    Raises:
        OutputInvalid: it is not, which only a format with ``strict: false`` lets happen.
    """
    if spec is not None and completion.finish_reason == "stop":
        validate(completion.text, spec)
