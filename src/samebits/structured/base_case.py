"""Schemas that refer to themselves: whether an end is possible, and how deep a reader would have to go.

Both are properties of the normalised schema. A definition without a base case has no finite value: a model held to it
could only run on until it is cut. And the compiler below follows references by recursion; a chain of two thousand of
them was seen to overflow its stack and end the process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from samebits.structured.keywords import TYPES
from samebits.structured.normalise import Normalised
from samebits.structured.references import refuse

_REMEDY: Final = "Give recursion an end, such as a property that is not required, or null."
MAX_CHAIN: Final = 250  # schemas on one path through references; the compiler was seen to stand 2,000


def check_base_cases(normalised: Normalised) -> None:
    """Refuses a definition that no finite value satisfies.

    Raises:
        InputError: names its place.
    """
    parts = _definitions(normalised)
    users: dict[str, set[str]] = defaultdict(set)
    for name, schema in parts.items():
        for target in _references(schema):
            users[target].add(name)
    finite: set[str] = set()
    waiting = list(parts)
    while waiting:
        name = waiting.pop()
        if name not in finite and _is_finite(parts[name], finite):
            finite.add(name)
            waiting.extend(users[name])
    endless = [name for name in parts if name not in finite]
    if endless:
        place = normalised.origins[endless[-1]]  # of a chain of references, the last
        raise refuse("the schema", place, "has no base case: no finite value satisfies it", _REMEDY)


def check_chains(normalised: Normalised) -> None:
    """Refuses references that lead through too many schemas, followed as the compiler does: each once, depth first.

    Raises:
        InputError: names where the chain became too long.
    """
    parts = _definitions(normalised)
    seen = {"#"}
    stack = [_children(parts["#"])]
    while stack:
        child = next(stack[-1], None)
        if child is None:
            stack.pop()
        elif isinstance(child, dict):
            stack.append(_children(child))
        elif isinstance(child, str) and child not in seen:
            seen.add(child)
            if len(stack) > MAX_CHAIN:
                place = normalised.origins[child]
                raise refuse("$ref", place, f"is more than {MAX_CHAIN} schemas deep", "Use shorter chains.")
            stack.append(iter([parts[child]]))


def _definitions(normalised: Normalised) -> dict[str, Any]:
    named = normalised.schema.get("$defs", {})
    return {"#": normalised.schema} | {f"#/$defs/{name}": schema for name, schema in named.items()}


def _children(schema: Any) -> Iterator[Any]:
    """Subschemas, and names of definitions where a reference stands."""
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        match keyword:
            case "$ref":
                yield value
            case "properties" | "patternProperties":
                yield from value.values()
            case "allOf" | "anyOf" | "oneOf" | "prefixItems":
                yield from value
            case "items" | "additionalProperties":
                yield value


def _references(schema: Any) -> Iterator[str]:
    for child in _children(schema):
        if isinstance(child, str):
            yield child
        else:
            yield from _references(child)


def _is_finite(schema: Any, finite: set[str]) -> bool:
    """Whether a finite value is seen, given definitions that have one. Conflicts between keywords are not looked at."""
    if not isinstance(schema, dict):
        return bool(schema)
    if "$ref" in schema and schema["$ref"] not in finite:
        return False
    if not all(_is_finite(s, finite) for s in schema.get("allOf", ())):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and not any(_is_finite(s, finite) for s in schema[keyword]):
            return False
    given = schema.get("type", TYPES)
    return any(_type_is_finite(t, schema, finite) for t in ([given] if isinstance(given, str) else given))


def _type_is_finite(name: str, schema: dict[str, Any], finite: set[str]) -> bool:
    if name == "array":
        first = schema.get("prefixItems", [])
        least = schema.get("minItems", 0)
        needed = [*first[:least], *([schema.get("items", True)] if least > len(first) else [])]
        return all(_is_finite(s, finite) for s in needed)
    if name == "object":
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        if "patternProperties" in schema:
            rest = True  # which of them a name falls under is left to the compiler
        return all(_is_finite(properties.get(n, rest), finite) for n in schema.get("required", ()))
    return True
