"""Which keyword the compiler stumbles over. Its messages name no place, so the keywords are tried one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from samebits.structured.normalise import Normalised

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


def find_culprit(normalised: Normalised, fault: str, attempt: Callable[[dict[str, Any]], str]) -> Culprit | None:
    """The innermost keyword without which the fault is gone or another one; none if no single one is to blame.

    Args:
        normalised: the schema.
        fault: what is wrong with it.
        attempt: says what is wrong with a schema; empty for nothing.
    """
    places = sorted(_places(normalised.schema, ()), key=len, reverse=True)
    named = [place for place in places if str(place[-1]) in fault.replace("min/max", "minProperties max")]
    for *path, keyword in (named or places)[:MOST_TRIES]:
        changed = copy.deepcopy(normalised.schema)
        part: Any = changed
        for step in path:
            part = part[step]
        del part[keyword]
        if attempt(changed) != fault:
            return Culprit(str(keyword), _original(tuple(path), normalised))
    return None


def _original(path: Path, normalised: Normalised) -> str:
    start = "#"
    if path[:1] == ("$defs",):
        start, path = normalised.origins[f"#/$defs/{path[1]}"], path[2:]
    return "/".join([start, *(str(step).replace("~", "~0").replace("/", "~1") for step in path)])


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
