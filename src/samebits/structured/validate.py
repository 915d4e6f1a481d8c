"""Judging a finished output, by other means than those that generated it: jsonschema-rs for JSON.

Number policy (docs/guide/structured-output.md): values are compared as they are written, without a round trip through
floats. ``1.0`` and ``1e0`` are integers and equal 1; ``true`` is no number.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from functools import lru_cache
from typing import Final

import jsonschema_rs
import llguidance

from samebits.errors import InputError, OutputInvalid, shown
from samebits.structured.grammar import HEAD, Vocabulary
from samebits.structured.json_text import JsonTextError, check_depth, read_json
from samebits.structured.pattern import pattern_size, to_engine
from samebits.structured.spec import Choice, JsonObject, JsonSchema, Lark, Regex, StructuredSpec

MAX_PATTERN_SIZE: Final = 100_000  # units of a letter, in all patterns of a schema or of the tools of a request; 12 MB
MAX_OUTPUT_DEPTH: Final = 200  # levels of an output; jsonschema-rs stops at 255
_OBJECT: Final = JsonSchema('{"type":"object"}')
_ANY_JSON: Final = 'start: %json {"x-guidance": {"json_allow_general_unicode_escapes": true}}'


def validate(text: str, spec: StructuredSpec) -> None:
    """Returns where the text satisfies the specification. The text is never changed or completed.

    Raises:
        OutputInvalid: it does not; ``incomplete`` where it could be the beginning of a text that does.
        InputError: ``text`` is no text, or ``spec`` no specification.
    """
    if not isinstance(text, str):
        raise InputError(f"{shown(text)} is not a text", field="text", remedy="Give the finished output.")
    match spec:
        case JsonObject():
            _validate_json(text, _OBJECT)
        case JsonSchema():
            _validate_json(text, spec)
        case Regex(pattern):
            if not _pattern_validator(pattern).is_valid(text):
                lark = f"start: /{llguidance.regex_to_lark(to_engine(pattern), 'dw')}/"
                raise OutputInvalid("does not match the pattern", incomplete=_follow(text, lark) == "begins")
        case Choice(options):
            if text not in options:
                begins = any(option.startswith(text) for option in options)
                raise OutputInvalid("is none of the choices", incomplete=begins)
        case Lark(grammar):
            if (verdict := _follow(text, grammar)) != "complete":
                raise OutputInvalid("does not follow the grammar", incomplete=verdict == "begins")
        case _:
            raise InputError(f"{shown(spec)} is no structure", field="spec", remedy="Give JsonSchema.of(…) or another.")


def validator_of(spec: JsonSchema) -> jsonschema_rs.Validator:
    """The validator of a schema; nothing is fetched from anywhere.

    Formats are not asserted: the grammar enforces the syntax of those it knows.

    Raises:
        InputError: the schema is not valid itself, or its patterns are too large.
    """
    return _VALIDATORS.get(spec.text)


def pattern_sizes(spec: JsonSchema) -> int:
    """The size of all patterns of a schema, in units of ``pattern_size``."""
    size, waiting = 0, [spec.document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            pattern, named = part.get("pattern"), part.get("patternProperties")
            size += pattern_size(pattern) if isinstance(pattern, str) else 0
            size += sum(map(pattern_size, named)) if isinstance(named, dict) else 0
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return size


def check_pattern_sizes(size: int, field: str) -> None:
    """Refuses patterns that would take too much memory.

    Raises:
        InputError: names ``field``.
    """
    if size > MAX_PATTERN_SIZE:
        raise InputError(
            f"has patterns of {size} characters, repetitions written out",
            field=field,
            remedy=f"Repeat less: {MAX_PATTERN_SIZE} are allowed in all.",
        )


class _Validators:
    """Validators by their schemas: those used last, as many as fit. Any thread may call it."""

    def __init__(self, most: int) -> None:
        """Args: most: characters of schemas and units of patterns that are kept."""
        self._most, self._size = most, 0
        self._known: OrderedDict[str, tuple[jsonschema_rs.Validator, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, schema: str, field: str = "json_schema") -> jsonschema_rs.Validator:
        with self._lock:
            if schema in self._known:
                self._known.move_to_end(schema)
                return self._known[schema][0]
        patterns = pattern_sizes(JsonSchema(schema))
        check_pattern_sizes(patterns, field)
        made, size = _validator(schema), len(schema) + patterns
        with self._lock:
            if schema not in self._known:
                self._known[schema] = made, size
                self._size += size
            while self._size > self._most:
                self._size -= self._known.popitem(last=False)[1][1]
        return made


_VALIDATORS: Final = _Validators(1_000_000)  # about 120 MB


def _validator(schema: str) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=False, offline=True)
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
            raise InputError(
                f"$ref leads out of the schema: {_short(error.message)}", field="json_schema", remedy="Use $defs."
            ) from error
        place = _pointer(error.instance_path)
        raise InputError(
            f"is no valid schema at #{place}: {_short(error.message)}", field="json_schema", remedy="Correct it."
        ) from error
    except ValueError as error:
        raise InputError(f"cannot be read: {error}", field="json_schema", remedy="Give plain JSON.") from error


def _pattern_validator(pattern: str) -> jsonschema_rs.Validator:
    try:
        return _VALIDATORS.get(json.dumps({"pattern": f"^(?:{pattern})$"}), field="regex")
    except InputError as error:
        if error.field == "regex":
            raise
        # Of the schema around it, which nobody has seen.
        raise InputError(
            f"{pattern!r:.100} is no pattern", field="regex", remedy="Write it as ECMA 262 says: close each bracket."
        ) from None


def _validate_json(text: str, spec: JsonSchema) -> None:
    validator = validator_of(spec)
    try:
        check_depth(text, MAX_OUTPUT_DEPTH)
        value = read_json(text, any_exponent=True)
    except JsonTextError as error:
        raise OutputInvalid(str(error), incomplete=_follow(text.lstrip(" \t\n\r"), _ANY_JSON) == "begins") from error
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        keyword = "/".join(map(str, error.schema_path))
        raise OutputInvalid(f"{_short(error.message)} ({keyword})", path=_pointer(error.instance_path)) from error
    except UnicodeEncodeError as error:
        raise OutputInvalid("holds a lone surrogate, which is no Unicode text") from error
    except ValueError as error:  # what is wrong has an integer of more digits than Python writes for a message
        raise OutputInvalid("does not satisfy the schema, and has an integer of more than 4,300 digits") from error


@lru_cache(maxsize=1)
def _bytes() -> Vocabulary:
    """A vocabulary in which each byte is a token."""
    return Vocabulary([bytes([b]) for b in range(256)], frozenset(), ())


def _follow(text: str, lark: str) -> str:
    """How a text stands to a grammar: ``complete``, ``begins`` one that is, or ``differs``."""
    matcher = llguidance.LLMatcher(_bytes().backend, HEAD + lark, log_level=0)
    content = text.encode("utf-8", "surrogatepass")
    if matcher.is_error() or matcher.try_consume_tokens(list(content)) < len(content):
        return "differs"
    return "complete" if matcher.is_accepting() else "begins"


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def _short(message: str) -> str:
    return message if len(message) <= 200 else f"{message[:197]}..."
