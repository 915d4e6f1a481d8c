"""A schema as the grammar compiler is given it: only what it enforces, in one draft, or a refusal by name and place.

The compiler ignores or misreads some of what a schema can say (bounds beyond binary64, names that could repeat, the
position of keywords). Here each keyword is either known to be enforced as written, known to say nothing about values,
or refused. References are renamed to ``#/$defs/r0``, ``r1`` …, and only what can be reached is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from samebits.errors import InputError
from samebits.structured import numbers
from samebits.structured.disjoint import all_disjoint
from samebits.structured.keywords import ANNOTATIONS, DRAFTS, FORMATS, LATEST, SINCE, UNSUPPORTED, UNTIL
from samebits.structured.pattern import PatternError, to_engine
from samebits.structured.references import References, refuse

MAX_NODES: Final = 20_000
MAX_DEFINITIONS: Final = 1_000
MAX_PROPERTIES: Final = 1_000  # of one object; compile time grows with their square: 0.07 s here
_REMOVE: Final = "Remove it, or give strict=False to have it checked only when the output is finished."
_IN_PLACE: Final = frozenset({"const", "enum", "allOf", "anyOf", "oneOf", "$ref"})
_UNESCAPED: Final = frozenset("\b\t\n\f\r")


@dataclass(frozen=True)
class Normalised:
    """What is left of a schema.

    Attributes:
        schema: for the compiler.
        origins: pointer in ``schema`` → pointer in the original, of the root and of each definition.
        unenforced: keywords that only validation will check, with their places; empty for a strict schema.
    """

    schema: dict[str, Any]
    origins: dict[str, str]
    unenforced: tuple[str, ...]


def normalise(document: Any, *, strict: bool, places: bool = False) -> Normalised:
    """The schema for the compiler.

    Args:
        document: valid against its meta-schema, numbers as int or Decimal.
        strict: refuse what cannot be enforced instead of leaving it out.
        places: give each part its pointer in the original, as ``$comment``.

    Raises:
        InputError: names the keyword and its place.
    """
    return _Walk(document, strict, places).run()


class _Walk:
    def __init__(self, document: Any, strict: bool, places: bool) -> None:
        self._references = References(document)
        self._strict, self._places = strict, places
        self._draft = _draft(document)
        self._names: dict[str, str] = {"#": "#"}  # pointer in the original → in the result
        self._waiting: list[str] = []
        self._unenforced: list[str] = []
        self._nodes = 0

    def run(self) -> Normalised:
        root = self._node(self._references.document, "#")
        if not isinstance(root, dict):
            root = {} if root else {"anyOf": []}
        definitions: dict[str, Any] = {}
        while self._waiting:
            pointer = self._waiting.pop()
            target = self._references.target(pointer, pointer)
            definitions[self._names[pointer].removeprefix("#/$defs/")] = self._node(target, pointer)
        if definitions:
            root["$defs"] = definitions
        origins = {name: pointer for pointer, name in self._names.items()}
        return Normalised(root, origins, tuple(self._unenforced))

    def _node(self, schema: Any, path: str) -> dict[str, Any] | bool:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise refuse("a reference", path, "leads to something that is no schema", "Point it at a schema.")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise refuse("the schema", path, f"has more than {MAX_NODES} parts", "Give a smaller one.")
        if self._draft < 2019 and "$ref" in schema:
            schema = {"$ref": schema["$ref"]}  # in these drafts what stands beside it says nothing
        # The compiler applies `allOf` and its kind before other keywords, wherever they stand. As members of one allOf,
        # parts keep their order, and with it that of the properties. Plain keywords read each other and stay together.
        plain: dict[str, Any] = {}
        parts: list[Any] = []
        first = "properties" if "properties" in schema else None
        for keyword, value in schema.items():
            if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
                continue  # all items are described already
            if not self._says_something(keyword, value, path):
                continue
            if keyword in _IN_PLACE:
                parts += self._in_place(keyword, value, path)
                continue
            first = first or keyword
            if keyword == first:
                parts.append(plain)
            _PLAIN[keyword](self, plain, keyword, value, path)
        self._check_names(plain, path)
        single = len(parts) == 1 and isinstance(parts[0], dict)
        node = parts[0] if single else {"allOf": parts} if parts else {}
        if self._places:
            for part in (node, *parts):
                if isinstance(part, dict):
                    part.setdefault("$comment", path)
        return node

    def _says_something(self, keyword: str, value: Any, path: str) -> bool:
        if keyword in {"$id", "id"} and path != "#" and isinstance(value, str) and not value.startswith("#"):
            raise refuse(keyword, path, "changes what references mean", "Keep an identifier only at the top.")
        if keyword in {"contentEncoding", "contentMediaType"} and self._draft in (6, 7):
            return self._leave_out(keyword, path)
        if keyword in ANNOTATIONS or keyword.startswith("x-") or (keyword == "uniqueItems" and value is False):
            return False
        if keyword in UNSUPPORTED:
            return self._leave_out(keyword, path)
        known = keyword in _IN_PLACE or keyword in _PLAIN
        if not known or not SINCE.get(keyword, 0) <= self._draft <= UNTIL.get(keyword, LATEST):
            return self._leave_out(keyword, path, "is not a keyword of this draft of JSON Schema")
        if keyword == "format" and value not in FORMATS:
            return self._leave_out(f"format {value!r:.40}", path)
        return True

    def _leave_out(self, keyword: str, path: str, why: str = "cannot be enforced while an output is generated") -> bool:
        if self._strict:
            raise refuse(keyword, path, why, _REMOVE)
        self._unenforced.append(f"{keyword} at {path}")
        return False

    # ---- keywords that apply other schemas to the same value ---------------------------------------------------------

    def _in_place(self, keyword: str, value: Any, path: str) -> list[Any]:
        here = f"{path}/{keyword}"
        match keyword:
            case "const":
                return [{keyword: _constant(value, here)}]
            case "enum":
                return [{keyword: [_constant(v, here) for v in value]}]
            case "$ref":
                return [{keyword: self._reference(value, path)}]
            case "allOf":
                return self._list(value, here)
            case "oneOf" if all_disjoint(value, self._references, path):
                keyword = "anyOf"
        return [{keyword: self._list(value, here)}]

    def _reference(self, reference: str, path: str) -> str:
        pointer = self._references.pointer(reference, path)
        name = self._names.get(pointer)
        if name is None:
            self._references.target(pointer, path)
            if len(self._names) > MAX_DEFINITIONS:
                raise refuse("$ref", path, f"is one of more than {MAX_DEFINITIONS} definitions", "Give fewer.")
            name = self._names[pointer] = f"#/$defs/r{len(self._names) - 1}"
            self._waiting.append(pointer)
        return name

    # ---- all others --------------------------------------------------------------------------------------------------

    def _copy(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        del path
        plain[keyword] = value

    def _required(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        if len(value) > MAX_PROPERTIES:
            raise refuse(keyword, path, f"has more than {MAX_PROPERTIES} names", "Give fewer.")
        plain[keyword] = value

    def _count(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        if value > numbers.MAX_EXACT:
            raise refuse(keyword, path, "is too large", f"Give at most {numbers.MAX_EXACT}.")
        plain[keyword] = int(value)

    def _bound(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        if isinstance(value, bool):  # draft 4: makes minimum or maximum exclusive, which must stand beside it
            plain[keyword] = value
        else:
            plain[keyword] = _number(value, keyword, path)

    def _pattern(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        plain[keyword] = _translated(value, keyword, path)

    def _child(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        plain[keyword] = self._node(value, f"{path}/{keyword}")

    def _items(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        if isinstance(value, list):  # until draft 2019-09
            plain["prefixItems"] = self._list(value, f"{path}/{keyword}")
        else:
            plain["items"] = self._node(value, f"{path}/{keyword}")

    def _rest_items(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        plain["items"] = self._node(value, f"{path}/{keyword}")

    def _prefix_items(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        plain[keyword] = self._list(value, f"{path}/{keyword}")

    def _map(self, plain: dict[str, Any], keyword: str, value: Any, path: str) -> None:
        if len(value) > MAX_PROPERTIES:
            raise refuse(keyword, path, f"has more than {MAX_PROPERTIES} names", "Give fewer.")
        schemas = {name: self._node(v, f"{path}/{keyword}/{_escaped(name)}") for name, v in value.items()}
        if keyword == "patternProperties":
            schemas = {_translated(name, keyword, path): v for name, v in schemas.items()}
        plain[keyword] = schemas

    def _list(self, value: list[Any], path: str) -> list[Any]:
        return [self._node(v, f"{path}/{i}") for i, v in enumerate(value)]

    def _check_names(self, plain: dict[str, Any], path: str) -> None:
        """minProperties counts different names, but a name that the schema does not list may come twice."""
        missing = plain.get("minProperties", 0) - len(plain.get("required", ()))
        is_open = plain.get("additionalProperties") is not False or plain.get("patternProperties")
        if missing > 1 and is_open and not self._leave_out("minProperties", path):
            del plain["minProperties"]


_PLAIN: Final[dict[str, Callable[[_Walk, dict[str, Any], str, Any, str], None]]] = {
    "type": _Walk._copy,
    "required": _Walk._required,
    "format": _Walk._copy,
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"), _Walk._count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _Walk._bound),
    "pattern": _Walk._pattern,
    "items": _Walk._items,
    "additionalItems": _Walk._rest_items,
    "prefixItems": _Walk._prefix_items,
    "additionalProperties": _Walk._child,
    "properties": _Walk._map,
    "patternProperties": _Walk._map,
}


def _draft(document: Any) -> int:
    name = document.get("$schema") if isinstance(document, dict) else None
    if name is None:
        return LATEST
    bare = name.removesuffix("#").removeprefix("http://").removeprefix("https://") if isinstance(name, str) else ""
    draft = DRAFTS.get(bare)
    if draft is None:
        raise refuse("$schema", "#", f"is {name!r:.80}, which is unknown", f"Use one of: {', '.join(DRAFTS)}.")
    return draft


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _number(value: Any, keyword: str, path: str) -> int | float:
    try:
        return numbers.exact(value)
    except ValueError as error:
        raise refuse(
            keyword, path, str(error), f"Use numbers that binary64 holds, up to {numbers.MAX_EXACT}."
        ) from error


def _translated(pattern: str, keyword: str, path: str) -> str:
    try:
        return to_engine(pattern, in_json=True)
    except PatternError as error:
        raise InputError(f"{keyword} at {path}: {error}", field="json_schema", remedy="Write it without.") from error


def _constant(value: Any, path: str) -> Any:
    """A value of const or enum. Numbers that are integers are written as integers."""
    match value:
        case bool() | None:
            return value
        case str():
            if any((c < " " and c not in _UNESCAPED) or c == "\x7f" for c in value):
                raise refuse("a text", path, "holds a control character without a short escape", "Remove it.")
            return value
        case list():
            return [_constant(v, path) for v in value]
        case dict():
            return {name: _constant(v, path) for name, v in value.items()}
        case _:
            return _number(value, "a number", path)
