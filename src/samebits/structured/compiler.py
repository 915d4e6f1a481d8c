"""From what is asked of an output to a grammar that follows it.

Decisions that fix which ids are allowed, all in ``GRAMMAR_OPTIONS`` and the digest of a grammar:

* No text is forced (``no_forcing``): an id is allowed exactly where its bytes can be continued to a text of the
  grammar, however that text would usually be cut into tokens. So the set does not hang on a tokenizer's habits.
* JSON is written on one line with ``, `` and ``: `` between parts and no other white space: nothing to loop in.
* Characters are written as themselves: ``\\uXXXX`` is not used. (With it, a name that the schema describes could be
  spelled in another way and escape its description.)
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import llguidance
import numpy as np

from samebits.errors import ConstraintError, InputError, shown
from samebits.numerics import digest_json
from samebits.structured.base_case import check_base_cases, check_chains
from samebits.structured.culprit import find_culprit
from samebits.structured.grammar import HEAD, LIMITS, MAX_ITEMS, GrammarConstraint, Vocabulary, first_line
from samebits.structured.normalise import normalise
from samebits.structured.pattern import PatternError, pattern_size, to_engine
from samebits.structured.references import refuse
from samebits.structured.spec import (
    Choice,
    Framed,
    JsonObject,
    JsonSchema,
    Lark,
    Regex,
    StructuredSpec,
    spec_digest,
    spec_size,
)
from samebits.structured.validate import check_pattern_sizes, validator_of

GRAMMAR_OPTIONS: Final[dict[str, Any]] = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "json_allowed_escapes": 'nrbtf\\"',
}
MOST_KEPT: Final = 1_000_000  # characters of remembered specifications: about 100 MB
MAX_LARK_LINES: Final = 500  # a chain of 10,000 rules was seen to overflow the compiler's stack
# Tokens that are tried after the beginning. A text of JSON begins in fewer ways; of others these stand for the rest.
_FIRST_TOKENS: Final = 8
# An object within a schema is tried by itself where its properties, with those of its parts, could reach MAX_ITEMS.
_WIDE: Final = MAX_ITEMS // 16
_TOO_WIDE: Final = f"somewhere there are more ways to go on than the limit of {MAX_ITEMS}"
_TOO_LARGE: Final = "schema too large"  # as the compiler says it
_DIRECTIVE: Final = re.compile(r"%(llguidance|json|lark)\b")
_SPECIAL: Final = re.compile(r"<[^>\s]*>")
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|#[^\n]*|/(?:[^/\\\n]|\\.)+/')  # strings, comments, patterns


@dataclass(frozen=True)
class Grammar:
    """A compiled specification.

    Attributes:
        spec: what was compiled.
        digest: of the specification, the options above, and the library that decides what is allowed. Requests with
            one digest and one model are held to the same ids.
        unenforced: parts of a schema with ``strict=False`` that only validation will check, with their places.
    """

    spec: StructuredSpec | Framed
    digest: str
    unenforced: tuple[str, ...]
    _template: GrammarConstraint = field(repr=False, compare=False)

    def constraint(self) -> GrammarConstraint:
        """A constraint at its beginning, for ``Request.constraint``."""
        return self._template.fork()


class GrammarCompiler:
    """Compiles specifications for one model, and remembers them. Any thread may call it, also several at once.

    Args:
        vocabulary: the model's.
        remember: grammars kept, the ones used last; 0 keeps none. Fewer where they are large: see MOST_KEPT.
    """

    def __init__(self, vocabulary: Vocabulary, *, remember: int = 256) -> None:
        self._vocabulary = vocabulary
        self._remember = remember
        self._known: OrderedDict[str, Grammar] = OrderedDict()
        self._size = 0  # of those
        self._lock = threading.Lock()

    def compile(self, spec: StructuredSpec | Framed) -> Grammar:
        """The grammar of a specification. Takes from under a millisecond to some seconds; never call it in a step.

        Raises:
            InputError: it cannot be enforced; names the keyword and its place where there is one.
        """
        key = spec_digest(spec)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        grammar = self._compile(spec, key)  # outside the lock: two threads may do the same work, with the same result
        with self._lock:
            if key not in self._known:
                self._known[key] = grammar
                self._size += spec_size(spec)
            while len(self._known) > self._remember or self._size > MOST_KEPT:
                self._size -= spec_size(self._known.popitem(last=False)[1].spec)
        return grammar

    def _compile(self, spec: StructuredSpec | Framed, key: str) -> Grammar:
        unenforced: tuple[str, ...] = ()
        match spec:
            case JsonObject():
                template, unenforced = self._from_schema(JsonSchema('{"type":"object"}'))
            case JsonSchema():
                template, unenforced = self._from_schema(spec)
            case Regex():
                check_pattern_sizes(pattern_size(spec.pattern), "regex")
                template = self._from_lark("regex", f"start: /{_engine_pattern(spec.pattern)}/")
            case Choice():
                options = " | ".join(json.dumps(option) for option in spec.options)
                template = self._from_lark("choice", f"start: {options}")
            case Lark():
                _check_lark(spec.grammar)
                template = self._from_lark("grammar", spec.grammar)
            case Framed():
                parts = [self._from_schema(frame.schema)[1] for frame in spec.frames]  # each is refused by its own name
                unenforced = tuple(place for part in parts for place in part)
                template = self._from_lark("tools", _framed_lark(spec))
        digest = digest_json({"spec": key, "options": GRAMMAR_OPTIONS, "library": llguidance.get_version()})
        return Grammar(spec, digest, unenforced, template)

    def _from_schema(self, spec: JsonSchema) -> tuple[GrammarConstraint, tuple[str, ...]]:
        validator_of(spec)  # the schema itself is valid, by another reader
        document = spec.document
        normalised = normalise(document, strict=spec.strict)
        check_base_cases(normalised)
        check_chains(normalised)
        template, fault = self._try_schema(normalised.schema, spec.strict)
        for part in wide_parts(normalised.schema) if template is not None else ():
            _, fault = self._try_schema(part, spec.strict)
            if fault == _TOO_WIDE:
                template = None
                break
        if template is not None:
            return template, normalised.unenforced
        if fault == _TOO_WIDE:
            raise InputError(
                f"cannot be enforced: {fault}",
                field="json_schema",
                remedy=f"Give an object fewer than {MAX_ITEMS // 5} optional properties, or make them required.",
            )
        if fault == _TOO_LARGE:  # as a whole: no keyword is to blame, and each attempt would take as long again
            raise InputError(f"cannot be enforced: {fault}", field="json_schema", remedy="Give a simpler schema.")
        placed = normalise(document, strict=spec.strict, places=True).schema
        culprit = find_culprit(placed, fault, lambda schema: self._try_schema(schema, spec.strict)[1])
        if culprit is not None:
            raise refuse(culprit.keyword, culprit.path, f"cannot be enforced: {fault}", "Change or remove it.")
        raise InputError(f"cannot be enforced: {fault}", field="json_schema", remedy="Give a simpler schema.")

    def _try_schema(self, schema: dict[str, Any], strict: bool) -> tuple[GrammarConstraint | None, str]:
        return self._try(f"start: {_json_lark(schema, strict)}")

    def _from_lark(self, field: str, text: str) -> GrammarConstraint:
        template, fault = self._try(text)
        if template is None:
            raise InputError(f"cannot be used: {fault}", field=field, remedy="Correct or simplify it.")
        return template

    def _try(self, text: str) -> tuple[GrammarConstraint | None, str]:
        """The constraint, or None and what is wrong."""
        matcher = llguidance.LLMatcher(self._vocabulary.backend, HEAD + text, log_level=0, limits=LIMITS)
        if matcher.is_error():
            return None, _fault(matcher.get_error())
        template = GrammarConstraint(matcher, self._vocabulary)
        try:  # on a fork: the state of the template must not hang on what was asked of it before
            first = template.fork().allowed()
        except ConstraintError as error:
            return None, _TOO_WIDE if _is_too_wide(error) else str(error)
        if not first.any():
            return None, "no text in this model's tokens satisfies it"
        for token in np.flatnonzero(first & self._vocabulary.text)[:_FIRST_TOKENS]:
            fork = template.fork()
            try:
                fork.accept(int(token))
                if not fork.finished:
                    fork.allowed()
            except ConstraintError as error:
                if _is_too_wide(error):
                    return None, _TOO_WIDE
        return template, ""


def _is_too_wide(error: ConstraintError) -> bool:
    return f"items; max is {MAX_ITEMS}" in str(error)


def wide_parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Parts of a normalised schema that hold many properties, each with the definitions it may refer to."""
    parts: list[dict[str, Any]] = []
    _properties(schema, parts)
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return [definitions | part for part in parts if part is not schema]


def _properties(schema: Any, wide: list[dict[str, Any]]) -> int:
    """Counts the properties of a schema and of its parts; adds those that have many to ``wide``."""
    if not isinstance(schema, dict):
        return 0
    count = 0
    for keyword, value in schema.items():
        if keyword in {"properties", "patternProperties", "$defs"}:
            count += sum(1 + _properties(child, wide) for child in value.values())
        elif keyword in {"allOf", "anyOf", "oneOf", "prefixItems"}:
            count += sum(_properties(child, wide) for child in value)
        elif keyword in {"items", "additionalProperties"}:
            count += _properties(value, wide)
    if count > _WIDE:
        wide.append(schema)
    return count


def _json_lark(schema: dict[str, Any], strict: bool) -> str:
    options = GRAMMAR_OPTIONS | {"coerce_one_of": not strict}
    return f"%json {json.dumps({'x-guidance': options} | schema, ensure_ascii=False)}"


def _framed_lark(spec: Framed) -> str:
    """Each schema is a rule of its own: ``%json`` stands for a whole rule."""
    rest = "" if spec.separator is None else f" ({json.dumps(spec.separator)} frame)*"
    lines = [
        f"start: begin frame{rest} {json.dumps(spec.end)}",
        f"begin: {' | '.join(json.dumps(text) for text in spec.begins)}",
        f"frame: {' | '.join(f'frame_{i}' for i in range(len(spec.frames)))}",
    ]
    for i, frame in enumerate(spec.frames):
        schema = normalise(frame.schema.document, strict=frame.schema.strict).schema
        lines.append(f"frame_{i}: {json.dumps(frame.before)} value_{i} {json.dumps(frame.after)}")
        lines.append(f"value_{i}: {_json_lark(schema, frame.schema.strict)}")
    return "\n".join(lines)


def _engine_pattern(pattern: str) -> str:
    try:
        return llguidance.regex_to_lark(to_engine(pattern), "dw")
    except PatternError as error:
        raise InputError(str(error), field="regex", remedy="Write it without.") from error


def _check_lark(grammar: str) -> None:
    if grammar.count("\n") > MAX_LARK_LINES:
        raise InputError(
            f"has more than {MAX_LARK_LINES} lines", field="grammar", remedy="Join short rules, or give fewer."
        )
    bare = _QUOTED.sub("", grammar)
    if (found := _DIRECTIVE.search(bare)) is not None:
        raise InputError(
            f"holds %{found[1]}, which sets options of ours", field="grammar", remedy="Use a JSON schema for JSON."
        )
    if (found := _SPECIAL.search(bare)) is not None:
        raise InputError(
            f"names the special token {shown(found[0])}, which is no text", field="grammar", remedy="Leave it out."
        )


def _fault(message: str) -> str:
    """What llguidance says, without the place in the text that we gave it and options that we do not offer."""
    if "oneOf constraints are not supported" in message:
        return "oneOf: its options are not seen to exclude each other"
    line = first_line(message)
    line = re.sub(r"^(at )?\d+\(\d+\): ", "", line)
    line = line.removeprefix("failed to compile JSON schema: ")
    rest = [part.strip() for part in message.split("\n")[1:] if "error:" in part]
    return " ".join([line, *rest])[:300].rstrip(" .:")
