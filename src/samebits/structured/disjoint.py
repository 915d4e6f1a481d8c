"""Whether no value can satisfy two schemas at once, where that is easy to see: then oneOf is anyOf."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from decimal import Decimal
from typing import Any, Final

from samebits.structured.keywords import TYPES
from samebits.structured.references import References

MOST_OPTIONS: Final = 200  # each pair is looked at


def all_disjoint(options: list[Any], references: References, path: str) -> bool:
    """Whether each pair is seen to be disjoint: by type, by a constant, or by the constant of a required property."""
    if len(options) > MOST_OPTIONS:
        return False
    schemas = [references.look_through(option, path) for option in options]
    return all(_disjoint(a, b, references, path) for a, b in itertools.combinations(schemas, 2))


def _disjoint(a: Any, b: Any, references: References, path: str) -> bool:
    if a is False or b is False:
        return True
    if not isinstance(a, dict) or not isinstance(b, dict):
        return False
    if not _types(a) & _types(b):
        return True
    if _constants_differ(a, b):
        return True
    if _types(a) != {"object"} or _types(b) != {"object"}:
        return False
    ours, theirs = a.get("properties", {}), b.get("properties", {})
    required = {*a.get("required", ()), *b.get("required", ())}
    return any(
        _constants_differ(references.look_through(ours[name], path), references.look_through(theirs[name], path))
        for name in sorted(required & ours.keys() & theirs.keys())
    )


def _types(schema: dict[str, Any]) -> set[str]:
    given = schema.get("type", TYPES)
    names = {given} if isinstance(given, str) else set(given)
    return {"number" if name == "integer" else name for name in names}


def _constants_differ(a: Any, b: Any) -> bool:
    ours, theirs = _constants(a), _constants(b)
    return ours is not None and theirs is not None and not ours & theirs


def _constants(schema: Any) -> set[Hashable] | None:
    """The only values a schema allows, if they are scalars; equal numbers are one value, and true is not 1."""
    if not isinstance(schema, dict):
        return None
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or any(isinstance(v, dict | list) for v in values):
        return None
    return {(type(v).__name__, v) if isinstance(v, str | bool) or v is None else Decimal(v) for v in values}
