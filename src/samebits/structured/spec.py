"""What an output is asked to be: plain values, compared and digested by their content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from samebits.errors import InputError
from samebits.numerics import digest_json
from samebits.structured.json_text import JsonTextError, check_depth, read_json, value_depth

MAX_TEXT: Final = 256 << 10  # characters of a schema, grammar or pattern; compiling that much takes about a second
MAX_DEPTH: Final = 100  # levels of a schema; the readers below us refuse 128
MAX_PATTERN: Final = 16 << 10
MAX_OPTIONS: Final = 4096
_TRUE_OR_FALSE: Final = (True, False)


@dataclass(frozen=True)
class JsonObject:
    """Any JSON object."""


@dataclass(frozen=True)
class JsonSchema:
    """A JSON value that satisfies a schema.

    Attributes:
        text: the schema as JSON text. The order of its properties is the order in which they are generated, so two
            texts that differ in it are two different requests.
        strict: refuse a schema with a keyword that generation cannot enforce. Otherwise such keywords are left to the
            validation of the finished output, which may then fail.

    Raises:
        InputError: not JSON, a name twice in one object, nested or written too large.
    """

    text: str
    strict: bool = True

    def __post_init__(self) -> None:
        _check_text("json_schema", self.text, MAX_TEXT)
        if self.strict not in _TRUE_OR_FALSE:
            raise InputError(f"{self.strict!r} is not a bool", field="strict", remedy="Give true or false.")
        try:
            check_depth(self.text, MAX_DEPTH)
            document = read_json(self.text)
        except JsonTextError as error:
            raise InputError(str(error), field="json_schema", remedy="Give a schema as plain JSON.") from error
        if not isinstance(document, dict | bool):
            raise InputError(
                "is not an object", field="json_schema", remedy='Give a schema such as {"type": "object"}.'
            )

    @classmethod
    def of(cls, schema: Mapping[str, Any] | bool, *, strict: bool = True) -> JsonSchema:
        """The same for a schema that has been read already; the order of its keys is kept.

        Raises:
            InputError: as for the class; also for values that JSON does not have.
        """
        if value_depth(schema, MAX_DEPTH) > MAX_DEPTH:
            raise InputError(
                f"is nested deeper than {MAX_DEPTH} levels", field="json_schema", remedy="Give parts a name in $defs."
            )
        try:
            text = json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise InputError(f"is not JSON: {error}", field="json_schema", remedy="Give plain JSON values.") from error
        return cls(text, strict)

    @property
    def document(self) -> Any:
        """The schema, with every number as it is written: int or Decimal."""
        return read_json(self.text)


@dataclass(frozen=True)
class Regex:
    """A text that matches a pattern as a whole. The dialect is that of ``pattern`` in JSON Schema (ECMA 262)."""

    pattern: str

    def __post_init__(self) -> None:
        _check_text("regex", self.pattern, MAX_PATTERN)


@dataclass(frozen=True)
class Lark:
    """A text of a context-free grammar, written as llguidance's Lark dialect has it; its start symbol is ``start``."""

    grammar: str

    def __post_init__(self) -> None:
        _check_text("grammar", self.grammar, MAX_TEXT)


@dataclass(frozen=True)
class Choice:
    """One of some texts."""

    options: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.options, list | tuple) or not self.options or len(self.options) > MAX_OPTIONS:
            raise InputError(
                "is not a list of texts", field="choice", remedy=f"Give 1 to {MAX_OPTIONS} different texts."
            )
        object.__setattr__(self, "options", tuple(self.options))
        for i, option in enumerate(self.options):
            _check_text(f"choice[{i}]", option, MAX_PATTERN)
        if len(set(self.options)) < len(self.options):
            raise InputError("names a text twice", field="choice", remedy="Remove the second one.")
        if sum(map(len, self.options)) > MAX_TEXT:
            raise InputError("is too long", field="choice", remedy=f"Give at most {MAX_TEXT} characters in all.")


@dataclass(frozen=True)
class Frame:
    """A JSON value between two texts."""

    before: str
    schema: JsonSchema
    after: str


@dataclass(frozen=True)
class Framed:
    """JSON values in frames, such as the tool calls of a model. Whoever asks for frames reads them too: ``validate``
    does not take it.

    Attributes:
        begins: texts of which one stands first; the empty text may be one.
        frames: of which each place takes one.
        separator: the text between one and the next; None: there is one alone.
        end: the text that stands last.
    """

    begins: tuple[str, ...]
    frames: tuple[Frame, ...]
    separator: str | None
    end: str


StructuredSpec = JsonObject | JsonSchema | Regex | Lark | Choice


def spec_digest(spec: StructuredSpec | Framed) -> str:
    """A digest of the content; the order of a schema's properties counts."""
    match spec:
        case JsonObject():
            content: Any = None
        case JsonSchema(text, strict):
            content = [text, strict]
        case Regex(pattern):
            content = pattern
        case Lark(grammar):
            content = grammar
        case Choice(options):
            content = list(options)
        case Framed(begins, frames, separator, end):
            content = [begins, [[f.before, f.schema.text, f.schema.strict, f.after] for f in frames], separator, end]
    return digest_json({"kind": type(spec).__name__, "content": content})


def spec_size(spec: StructuredSpec | Framed) -> int:
    """Characters of a specification, of which a compiled grammar takes about 100 bytes each."""
    match spec:
        case JsonObject():
            return 0
        case JsonSchema(text) | Regex(text) | Lark(text):
            return len(text)
        case Choice(options):
            return sum(map(len, options))
        case Framed(frames=frames):
            return sum(len(frame.before) + len(frame.schema.text) + len(frame.after) for frame in frames)


def _check_text(field: str, text: object, most: int) -> None:
    if not isinstance(text, str) or not text:
        raise InputError("is not a non-empty text", field=field, remedy="Give a text.")
    if len(text) > most:
        raise InputError(f"has {len(text)} characters", field=field, remedy=f"Give at most {most}.")
    if not text.isprintable() and any("\ud800" <= c <= "\udfff" for c in text):
        raise InputError("holds a lone surrogate, which is no Unicode text", field=field, remedy="Remove it.")
