"""Bodies, read strictly, and what is wrong with one in a sentence that names the field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from samebits.errors import InputError

MOST_SHOWN: Final = 80
MOST_LEVELS: Final = 128  # a schema may have 100, and stands within a few more
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")  # an escape of one, alone or in a pair
# Parts of a location that pydantic adds for the members of a union; no field of ours has such a name.
_BRANCHES: Final = frozenset({"str", "int", "float", "bool", "none", "[key]"})
_BRANCH_STARTS: Final = ("list[", "dict[", "literal[", "constrained-", "function-", "<")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a body.

    Attributes:
        said: a sentence or two for a person.
        param: the field, such as ``messages[0].content``; None for the body as a whole.
        code: for a program.
    """

    said: str
    param: str | None
    code: str

    @property
    def message(self) -> str:
        """What was said, after the name of the field."""
        return f"{self.param or 'body'}: {self.said}"


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
    if _is_deeper(value, MOST_LEVELS):
        raise _refusal(f"is nested deeper than {MOST_LEVELS} levels")
    if _SURROGATE.search(text) and (path := _surrogate(value)) is not None:
        raise InputError(
            "holds a lone surrogate, which is no Unicode text", field=_spelled(path) or "body", remedy="Remove it."
        )
    return value


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


def _is_deeper(value: Any, levels: int) -> bool:
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


def first_problem(errors: Sequence[Mapping[str, Any]], skip: int = 1) -> Problem:
    """The first thing that pydantic found, said so that one can act on it.

    Args:
        skip: parts of each location that stand before the names of fields, such as "body".
    """
    error = errors[0]
    path = _path(error["loc"][skip:])
    param = _spelled(path)
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return Problem("is not a known parameter. Remove it: nothing is ignored here.", param, "unknown_parameter")
    if error["type"] == "none_required":
        return Problem("is not supported. Leave it out.", param, "unsupported_parameter")
    if error["type"] == "missing":
        return Problem("is missing. Give it.", param, "missing_required_parameter")
    siblings = [e for e in errors if _path(e["loc"][skip:]) == path]  # the other members of a union
    said = "; or ".join(dict.fromkeys(str(e["msg"]).removeprefix("Value error, ").removesuffix(".") for e in siblings))
    given = repr(error.get("input"))
    if len(given) > MOST_SHOWN:
        given = given[:MOST_SHOWN] + "…"
    return Problem(f"{said}. It is {given}.", param, "invalid_value")


def _path(location: Sequence[str | int]) -> tuple[str | int, ...]:
    return tuple(
        part for part in location if isinstance(part, int) or not (part in _BRANCHES or part.startswith(_BRANCH_STARTS))
    )


def _spelled(path: Sequence[str | int]) -> str | None:
    if not path:
        return None
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
