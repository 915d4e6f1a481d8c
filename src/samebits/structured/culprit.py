"""Which keyword the compiler stumbles over. Its messages name no place, so the keywords are tried one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

MOST_TRIES: Final = 40  # each compiles the schema once
_SUSPECTS: Final = frozenset(
    {"oneOf", "allOf", "anyOf", "enum", "const", "pattern", "patternProperties", "minProperties", "maxProperties"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "format"}
    | {"minItems", "maxItems", "required", "$ref"}
)
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Culprit:
    """A keyword, and the pointer of the schema it stands in."""

    keyword: str
    path: str


def find_culprit(schema: dict[str, Any], fault: str, attempt: Callable[[dict[str, Any]], str]) -> Culprit | None:
    """The innermost keyword that causes the fault; None where no single one is seen to.

    Args:
        schema: normalised, with places.
        fault: what is wrong with it.
        attempt: says what is wrong with a schema; empty for nothing.
    """
    places = sorted(_places(schema, ()), key=len, reverse=True)
    # A fault that names a keyword is of that kind, of which there may be many: one is left in place at a time.
    named = [place for place in places if str(place[-1]) in fault.replace("min/max", "minProperties max")]
    for place in named[:MOST_TRIES]:
        if attempt(_without(schema, [other for other in named if other != place])) == fault:
            return _culprit(schema, place)
    for place in places[:MOST_TRIES]:  # otherwise one is taken away at a time
        if attempt(_without(schema, [place])) != fault:
            return _culprit(schema, place)
    return None


def _without(schema: dict[str, Any], places: list[Path]) -> dict[str, Any]:
    """A copy without keywords; places go from the inside out."""
    changed = copy.deepcopy(schema)
    for *path, keyword in places:
        del _at(changed, path)[keyword]
    return changed


def _at(schema: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        schema = schema[step]
    return schema


def _culprit(schema: dict[str, Any], place: Path) -> Culprit:
    return Culprit(str(place[-1]), _at(schema, place[:-1])["$comment"])


def _places(schema: Any, path: Path) -> Iterator[Path]:
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        here = (*path, keyword)
        if keyword in _SUSPECTS:
            yield here
        if keyword in {"properties", "patternProperties", "$defs"}:
            for name, child in value.items():
                yield from _places(child, (*here, name))
        elif keyword in {"allOf", "anyOf", "oneOf", "prefixItems"}:
            for i, child in enumerate(value):
                yield from _places(child, (*here, i))
        elif keyword in {"items", "additionalProperties"}:
            yield from _places(value, here)
