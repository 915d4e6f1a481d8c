"""JSON of bodies, read strictly: what one reader would take for another value than the next one is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import orjson

from samebits.errors import InputError

MOST_SHOWN: Final = 80
MOST_LEVELS: Final = 128  # a schema may have 100, and stands within a few more
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")  # an escape of one, alone or in a pair


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
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
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
    if _SURROGATE.search(text) and (path := _surrogate(value)) is not None:
        raise InputError(
            "holds a lone surrogate, which is no Unicode text", field=spelled(path) or "body", remedy="Remove it."
        )
    return value


def write_json(value: Any) -> bytes:
    """A JSON value as bytes, in the order of its keys; also what the faster writer refuses: lone surrogates and
    integers beyond 64 bits.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def _surrogate(value: Any) -> tuple[str | int, ...] | None:
    """Where a text or a key holds a lone surrogate. Requires a depth that was checked."""
    if isinstance(value, str):
        return () if _is_broken(value) else None
    if isinstance(value, dict):
        if any(map(_is_broken, value)):
            return ()
        parts: Iterable[tuple[str | int, Any]] = value.items()
    else:
        parts = enumerate(value) if isinstance(value, list) else ()
    return next(((key, *rest) for key, part in parts if (rest := _surrogate(part)) is not None), None)


def _is_broken(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


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
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
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
