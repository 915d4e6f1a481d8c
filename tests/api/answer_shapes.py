"""The shape of an answer: which fields OpenAI defines are there, and of which JSON type each is.

The definition is the types of the `openai` package, which are generated from OpenAI's specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from openai.types import Completion, CompletionChoice, ErrorObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel


class ChunkChoice(CompletionChoice):
    """The package has one type for answers and for chunks; OpenAI's server sends null until the last chunk."""

    finish_reason: Literal["stop", "length", "content_filter"] | None  # type: ignore[assignment]


class CompletionChunk(Completion):
    """A chunk of a completion."""

    choices: list[ChunkChoice]  # type: ignore[assignment]


class Failure(BaseModel):
    """The body of every error; the package defines what is in it."""

    error: ErrorObject


class Models(BaseModel):
    """The body of /v1/models."""

    object: str
    data: list[Model]


SPECIFIED: Mapping[str, type[BaseModel]] = {
    "chat": ChatCompletion,
    "chat chunk": ChatCompletionChunk,
    "completion": Completion,
    "completion chunk": CompletionChunk,
    "error": Failure,
    "models": Models,
}
SCHEMAS = {kind: model.model_json_schema() for kind, model in SPECIFIED.items()}
# Path of a field → JSON types met there; "absent" where an object that should hold it does not.
Shape = dict[str, frozenset[str]]


def json_type(value: object) -> str:
    """The name that JSON schema has for a value's type."""
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names[type(value)]


def shape(kind: str, values: Sequence[object]) -> Shape:
    """The shape of all answers of a kind together."""
    found: dict[str, set[str]] = {}
    for value in values:
        for path, name in _walk(value, SCHEMAS[kind], SCHEMAS[kind]["$defs"], ""):
            found.setdefault(path, set()).add(name)
    return {path: frozenset(names) for path, names in sorted(found.items())}


def violations(kind: str, values: Sequence[object]) -> list[str]:
    """Where answers break the specification: a type that it does not allow, a field that it requires."""
    found: dict[str, None] = {}
    for value in values:
        for path, allowed, name in _judged(value, SCHEMAS[kind], SCHEMAS[kind]["$defs"], ""):
            if name not in allowed:
                found[f"{path or kind} is {name}, not {' or '.join(sorted(allowed))}"] = None
    return list(found)


def _walk(value: object, schema: Mapping[str, Any], defs: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for place, _, name in _judged(value, schema, defs, path):
        yield place, name


def _judged(
    value: object, schema: Mapping[str, Any], defs: Mapping[str, Any], path: str
) -> Iterator[tuple[str, frozenset[str], str]]:
    """Each specified field within a value: its path, the types allowed there, and the type that it has."""
    branches = list(_branches(schema, defs))
    allowed = frozenset(b["type"] for b in branches)
    name = json_type(value)
    if name == "integer" and "integer" not in allowed and "number" in allowed:
        name = "number"  # 0 and 0.0 are one number
    yield path, allowed, name
    for branch in branches:
        if branch["type"] != name:
            continue
        if isinstance(value, list):
            for item in value:
                yield from _judged(item, branch["items"], defs, path + "[]")
        elif isinstance(value, dict) and _is_meant(value, branch, defs):
            for field, inner in branch.get("properties", {}).items():
                place = f"{path}.{field}".lstrip(".")
                if field in value:
                    yield from _judged(value[field], inner, defs, place)
                else:
                    types = frozenset(b["type"] for b in _branches(inner, defs))
                    yield place, types if field in branch.get("required", ()) else types | {"absent"}, "absent"
            other = branch.get("additionalProperties")
            if isinstance(other, dict):
                for item in value.values():
                    yield from _judged(item, other, defs, path + ".*")


def _branches(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The alternatives of a schema, each with its own type."""
    if "$ref" in schema:
        yield from _branches(defs[schema["$ref"].rsplit("/", 1)[1]], defs)
    elif "anyOf" in schema or "oneOf" in schema:
        for alternative in schema.get("anyOf") or schema["oneOf"]:
            yield from _branches(alternative, defs)
    else:
        yield schema


def _is_meant(value: Mapping[str, Any], branch: Mapping[str, Any], defs: Mapping[str, Any]) -> bool:
    """Whether the constants of one alternative fit, such as the type of a tool call."""
    constants = {name: s["const"] for name, s in branch.get("properties", {}).items() if "const" in s}
    return all(value.get(name, constant) == constant for name, constant in constants.items())
