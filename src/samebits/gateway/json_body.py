"""JSON of bodies, read strictly: what one reader would take for another value than the next one is refused."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

import orjson

from samebits.errors import InputError
from samebits.ledger.spelled import Spelled, number

MOST_SHOWN: Final = 80
MOST_LEVELS: Final = 128  # a schema may have 100, and stands within a few more
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")  # an escape of one, alone or in a pair
_HUGE: Final = re.compile(r"[eE]\+?[0-9]{3}|[0-9]{300}")  # what may be a number beyond all doubles
INTEGERS: Final = range(-(2**63), 2**64)  # those that the faster reader and writer keep
# What may be a number that a double does not hold: 15 digits are always safe, but for the smallest numbers. Each begins
# with a set of characters, which is what makes the search fast.
_LONG: Final = re.compile(rb"[0-9][0-9.]{15,}(?:[eE][-+]?[0-9]+)?")
_SMALL: Final = re.compile(rb"[0-9][0-9.]*[eE]-[0-9]{3,}")


def read_answer(data: bytes) -> Any:
    """The value of a JSON text in UTF-8, with integers of any size and the digits of each number.

    Raises:
        ValueError: it is no JSON (NaN and Infinity are not), a text has a lone surrogate, or it is nested too deeply.
    """
    value = orjson.loads(data)
    try:
        return json.loads(data, parse_float=number) if _loses_digits(data, value) else value
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_kept(data: bytes) -> bool:
    """Whether the faster reader keeps a compact JSON text to the byte."""
    return orjson.dumps(orjson.loads(data)) == data


def _loses_digits(data: bytes, value: Any) -> bool:
    """Whether ``value``, which the faster reader made of a JSON text, may have lost something of a number."""
    with contextlib.suppress(orjson.JSONEncodeError):  # deeper than the writer goes
        if orjson.dumps(value) == data:  # most servers write as it does; to look for numbers takes ten times as long
            return False
    found = _LONG.findall(data)
    if b"e-" in data or b"E-" in data:
        found += _SMALL.findall(data)
    return any(map(_is_lost, found))


def _is_lost(digits: bytes) -> bool:
    """Whether the faster reader would change a number without its sign, or what looks like one and is of a text."""
    if digits.isdigit():
        return len(digits) > 18
    try:
        return repr(float(digits)).encode() != digits and isinstance(number(digits.decode()), Spelled)
    except ValueError:
        return False  # of a text, such as 1.2.3


def read_json(body: bytes) -> Any:
    """The value of a JSON text in UTF-8.

    Raises:
        InputError: it is not UTF-8 or not JSON (NaN and Infinity are not), an object has a key twice, a text has a lone
            surrogate, or it is nested or has integers too long to read.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refusal(f"is not UTF-8 at byte {error.start}") from error
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=number, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise _refusal(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise _refusal("is nested too deeply") from error
    except InputError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise _refusal("holds an integer with too many digits") from error
    if is_deeper(value, MOST_LEVELS):
        raise _refusal(f"is nested deeper than {MOST_LEVELS} levels")
    if _SURROGATE.search(text) and (path := _place(value, _is_broken)) is not None:
        raise InputError(
            "holds a lone surrogate, which is no Unicode text", field=spelled(path) or "body", remedy="Remove it."
        )
    if _HUGE.search(text) and (path := _place(value, _is_infinite)) is not None:
        raise InputError(
            "is beyond all doubles", field=spelled(path) or "body", remedy="Send a number within ±1.8e308."
        )
    return value


def write_json(value: Any) -> bytes:
    """A JSON value as bytes, in the order of its keys and with the digits of its numbers; also what the faster writer
    refuses: integers beyond 64 bits and lone surrogates.
    """
    try:
        return orjson.dumps(value, default=_spelled)
    except orjson.JSONEncodeError:
        pass
    try:
        return orjson.dumps(_with_fragments(value), default=_spelled)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def _spelled(value: Any) -> orjson.Fragment:
    if isinstance(value, Spelled):
        return orjson.Fragment(value.text)
    raise TypeError(f"{type(value).__name__} is not of JSON")


def _with_fragments(value: Any) -> Any:
    """The value with each integer beyond 64 bits as its digits."""
    if isinstance(value, dict):
        return {name: _with_fragments(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_fragments(part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool) and value not in INTEGERS:
        return orjson.Fragment(str(value))
    return value


def _place(value: Any, is_wrong: Callable[[Any], bool]) -> tuple[str | int, ...] | None:
    """Where a key or a value that is no list and no object is wrong. Requires a depth that was checked."""
    if isinstance(value, dict):
        if any(map(is_wrong, value)):
            return ()
        parts: Iterable[tuple[str | int, Any]] = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    else:
        return () if is_wrong(value) else None
    return next(((key, *rest) for key, part in parts if (rest := _place(part, is_wrong)) is not None), None)


def _is_broken(value: Any) -> bool:
    """Whether it is a text with a lone surrogate."""
    text = value if isinstance(value, str) else ""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested deeper; without recursion, since that is what it guards against."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [part for held in layer if isinstance(held, dict | list) for part in _parts(held)]
        if not layer:
            return False
    return True


def _parts(held: dict[str, Any] | list[Any]) -> list[Any]:
    """Of a list or an object what may hold more, or a placeholder where nothing does."""
    values = held.values() if isinstance(held, dict) else held
    return [value for value in values if isinstance(value, dict | list)] or [None]


def _refusal(message: str) -> InputError:
    return InputError(message, field="body", remedy="Send one JSON object in UTF-8.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InputError(f"stands twice in one object: {twice!r:.{MOST_SHOWN}}", field="body", remedy="Send it once.")
    return result


def _constant(name: str) -> NoReturn:
    raise _refusal(f"holds {name}, which is not JSON")


def spelled(path: Sequence[str | int]) -> str | None:
    """A place in a body as messages name it, such as ``messages[0].content``; None for the whole."""
    if not path:
        return None
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
