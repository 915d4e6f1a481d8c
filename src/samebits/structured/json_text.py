"""Reading JSON without losing anything: numbers keep their digits, and a name that comes twice is an error."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

# A string (also one that does not end), or a bracket.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_FAR: Final = 10**12  # an exponent as far beyond the numbers of a schema, which end at 2^53, as any larger one
_MAX_INT_DIGITS: Final = 4000  # Python refuses to read more than 4,300 as an int


class JsonTextError(ValueError):
    """A text is not the JSON that it should be."""


def check_depth(text: str, most: int) -> None:
    """Looks at brackets alone, so that no reader has to recurse into a text that is nested too deeply.

    Raises:
        JsonTextError: more than ``most`` levels.
    """
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > most:
                raise JsonTextError(f"is nested deeper than {most} levels")
        elif token[0] in "]}":
            depth -= 1


def value_depth(value: object, most: int) -> int:
    """Levels of a JSON value, counted up to ``most + 1``: also one that holds itself has an answer."""
    level, depth = [value], 0
    while depth <= most:
        level = [
            child
            for part in level
            for child in (part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ())
            if isinstance(child, dict | list | tuple)
        ]
        if not level:
            break
        depth += 1
    return depth + isinstance(value, dict | list | tuple)


def read_json(text: str, *, any_exponent: bool = False) -> Any:
    """The value of a JSON text. Integers are int, other numbers Decimal: both exactly as written.

    Args:
        any_exponent: take also what no Decimal holds, exponents beyond ±10^18, and read them as ±10^12.

    Raises:
        JsonTextError: not JSON (NaN and Infinity are not), a name twice in one object, nested too deeply, or an
            exponent that is out of range.
    """
    decimal = _any_decimal if any_exponent else _decimal
    try:
        return json.loads(
            text, parse_int=_integer, parse_float=decimal, parse_constant=_no_constant, object_pairs_hook=_object
        )
    except json.JSONDecodeError as error:
        raise JsonTextError(f"is not JSON: {error}") from error
    except RecursionError as error:
        raise JsonTextError("is nested too deeply") from error


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _MAX_INT_DIGITS else Decimal(digits)


def _decimal(number: str) -> Decimal:
    try:
        return Decimal(number)
    except InvalidOperation as error:
        raise JsonTextError(f"has a number whose exponent is out of range: {number:.40}") from error


def _any_decimal(number: str) -> Decimal:
    try:
        return Decimal(number)
    except InvalidOperation:
        digits, _, exponent = number.lower().partition("e")
        return Decimal(f"{digits}e{'-' if exponent.startswith('-') else ''}{_FAR}")


def _no_constant(name: str) -> NoReturn:
    raise JsonTextError(f"is not JSON: it holds {name}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonTextError(f"has the name {twice!r:.80} twice in one object")
    return found
