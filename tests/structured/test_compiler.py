"""Compiling: what is refused, what is remembered, and that nothing a caller sends ends the process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from writers import COMPILER, VOCABULARY, accepts, at_random, constraint, refusal, write

from samebits.errors import InputError
from samebits.structured import Choice, GrammarCompiler, JsonObject, JsonSchema, Lark, Regex, compiler
from samebits.structured.spec import spec_size
from waiting import PATIENCE_S

# ---- case J01 --------------------------------------------------------------------------------------------------------


def test_case_j01_cycles_without_a_base_case_are_refused() -> None:
    assert "no base case" in refusal({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}})
    mutual = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    assert "no base case" in refusal({"$ref": "#/$defs/a", "$defs": mutual})
    endless = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert "no base case" in refusal(endless)
    assert accepts(constraint(endless | {"required": []}), '{"next": {}}'), "control: with an end it is accepted"


def test_case_j01_real_recursion_is_accepted_at_any_depth() -> None:
    node = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
        "required": ["value", "next"],
        "additionalProperties": False,
    }
    schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    for levels in (1, 6, 60):
        text = '{"value": 1, "next": ' * levels + "null" + "}" * levels
        assert accepts(constraint(schema), text)
        assert not accepts(constraint(schema), text.replace("null", "1"))


PATHOLOGICAL = {
    "nested objects": '{"properties":{"a":' * 2000 + "{}" + "}}" * 2000,
    "nested lists": '{"const":' + "[" * 100_000 + "]" * 100_000 + "}",
    "opening brackets": '{"type":"string","pattern":"' + "[" * 500 + '"}',
    "opening groups": '{"type":"string","pattern":"' + "(" * 500 + '"}',
    "nested groups": '{"type":"string","pattern":"' + "(" * 5000 + "a" + ")" * 5000 + '"}',
    "reference chain": '{"$ref":"#/$defs/d0","$defs":{'
    + ",".join(f'"d{i}":{{"items":{{"$ref":"#/$defs/d{i + 1}"}}}}' for i in range(5000))
    + ',"d5000":{}}}',
    "text": '{"title":"' + "x" * 300_000 + '"}',
    "lark rules": "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(20_000)) + '\nr20000: "a"',
    "lark groups": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "regex": "(" * 8000,
}


KINDS = {"lark rules": Lark, "lark groups": Lark, "regex": Regex}
SCRIPT = f"""
import json, sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
from writers import COMPILER
from samebits import structured
from samebits.errors import InputError

def work():
    for name, (kind, text) in json.load(sys.stdin).items():
        try:
            COMPILER.compile(getattr(structured, kind)(text))
            print(name, "was accepted", flush=True)
        except InputError as error:
            print(name, "was refused:", str(error)[:100], flush=True)
"""


def test_case_j01_what_would_end_the_process_is_refused() -> None:
    """In a thread, whose stack is the smallest that a server would use, and in a process that may die of it."""
    code = SCRIPT + "\nthread = threading.Thread(target=work); thread.start(); thread.join()"
    cases = {name: (KINDS.get(name, JsonSchema).__name__, text) for name, text in PATHOLOGICAL.items()}
    run = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(cases), capture_output=True, text=True, timeout=PATIENCE_S
    )
    verdicts = run.stdout.splitlines()
    assert run.returncode == 0, (verdicts[-1:], run.stderr[-500:])
    assert [v.split(" was ")[0] for v in verdicts] == list(cases)
    assert all(" was refused: " in v for v in verdicts), verdicts
    assert run.stderr == ""


def test_control_a_long_chain_would_end_the_process() -> None:
    """Without our bound the library's stack overflows, and the process with it."""
    code = (
        SCRIPT
        + """
import resource
from samebits.structured import compiler, normalise
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
compiler.check_chains = lambda schema: None
normalise.MAX_DEFINITIONS = 10**6
work()
"""
    )
    cases = {"chain": ("JsonSchema", PATHOLOGICAL["reference chain"])}
    run = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(cases), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert run.returncode < 0, f"not exercised: the library has become safe, and the bound may go: {run.stdout}"


# ---- what the library refuses ----------------------------------------------------------------------------------------

SEVENS = {"type": "number", "multipleOf": 7, "minimum": 1, "maximum": 6}
TWO = {"oneOf": [{"type": "integer"}, {"type": "number"}]}


@pytest.mark.parametrize(
    ("schema", "start"),
    [
        (TWO, "oneOf at #"),
        ({"properties": {"a/b": TWO}}, "oneOf at #/properties/a~1b"),
        (
            {"allOf": [{"properties": {"k": {"$ref": "#/$defs/d"}}}], "$defs": {"d": {"items": TWO}}},
            "oneOf at #/$defs/d",
        ),
        ({"$ref": "#/$defs/k", "$defs": {"k": {"items": TWO}}, "items": {"maximum": 3}}, "oneOf at #/$defs/k/items"),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1}, "maxProperties at #"),
        (SEVENS, "multipleOf at #"),
        (
            {"properties": {"n": SEVENS}, "required": ["n"], "type": "object"},
            "required at # cannot be enforced: Unsatisfiable schema: required property 'n' is unsatisfiable",
        ),
        ({"patternProperties": {"a": {}, "b": {}}}, "patternProperties at #"),
        ({"type": "string", "pattern": "a(?=b)"}, "pattern at #"),
        ({"type": "string", "pattern": r"(a)\1"}, "pattern at #"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength at #"),
    ],
)
def test_the_keyword_and_its_place_are_named(schema: dict[str, Any], start: str) -> None:
    assert refusal(schema).startswith(f"json_schema: {start}")


def test_all_of_many_one_ofs_in_question_are_seen() -> None:
    fine = {"oneOf": [{"type": "integer"}, {"type": "string"}]}
    schema = {"properties": {"a": fine, "b": {"items": TWO}, "c": TWO}}
    assert refusal(schema).startswith(
        "json_schema: oneOf at #/properties/b/items cannot be enforced: oneOf: its options"
    )


def test_one_of_with_constants_behind_references_is_accepted() -> None:
    """A union told apart by a property, as data classes are written."""
    kinds = {
        name: {
            "type": "object",
            "properties": {"kind": {"const": name}, name: {"type": "integer"}},
            "required": ["kind"],
        }
        for name in ("cat", "dog")
    }
    union = {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "discriminator": {"propertyName": "kind"}}
    schema = union | {"$defs": kinds}
    assert accepts(constraint(schema), '{"kind": "cat", "cat": 1}')
    assert not accepts(constraint(schema), '{"kind": "cow"}')


def test_one_of_without_strict_is_taken_as_any_of() -> None:
    assert accepts(constraint(TWO, strict=False), "1")
    assert accepts(constraint(TWO, strict=False), "1.5")


def test_a_schema_that_is_no_schema_is_refused() -> None:
    assert "no valid schema at #/type" in refusal({"type": "strin"})
    assert "no valid schema at #/properties/a/minimum" in refusal({"properties": {"a": {"minimum": "1"}}})


# ---- other kinds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grammar", "part"),
    [
        ("garbage(", "Expected token"),
        ('start: %json {"type": "object"}', "%json"),
        ('%llguidance {"no_forcing": false}\nstart: "a"', "%llguidance"),
        ('start: /"/ %json {"x-guidance": {"whitespace_flexible": true}}', "%json"),
        ('start: /#/ %json {"type": "object"}', "%json"),
        ('start: "a" <eos>', "special token '<eos>'"),
        ("start: /a/ <[0-9]>", "special token '<[0-9]>'"),
        ('start: "a" missing', "missing"),
        ("\n" * 600 + 'start: "a"', "lines"),
    ],
)
def test_grammars_that_are_refused(grammar: str, part: str) -> None:
    with pytest.raises(InputError, match="grammar: ") as caught:
        COMPILER.compile(Lark(grammar))
    assert part in str(caught.value)


def test_what_is_quoted_is_no_directive_and_no_special_token() -> None:
    follow = COMPILER.compile(Lark('start: "%json<eos>" /%json|<eos>\\/"/ // and %llguidance <eos>\n')).constraint()
    assert accepts(follow.fork(), "%json<eos>%json")
    assert accepts(follow, '%json<eos><eos>/"')


@pytest.mark.parametrize("pattern", ["a(", "(?=a)", "(?i)a", r"(a)\1", "[]"])
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="regex: "):
        COMPILER.compile(Regex(pattern))


def test_patterns_match_as_a_whole() -> None:
    for pattern in ("a|bc", "^a|bc$", "(?:a|bc)"):
        for text, good in (("a", True), ("bc", True), ("abc", False), ("ab", False)):
            assert accepts(COMPILER.compile(Regex(pattern)).constraint(), text) == good, (pattern, text)
    assert accepts(COMPILER.compile(Regex("a/b.")).constraint(), "a/b☺")


def test_choices_of_every_kind_of_text() -> None:
    options = ("red", "red wine", 'q"\\', "é\n\t", "\x01\x7f", "/a#{}", "%json", "☺")
    grammar = COMPILER.compile(Choice(options))
    for option in options:
        assert accepts(grammar.constraint(), option)
    assert not accepts(grammar.constraint(), "re")
    assert {write(grammar.constraint(), at_random(s)).text for s in range(300)} == set(options)


def test_case_j03_json_has_one_form_and_no_place_for_blanks() -> None:
    for text, good in (
        ('{"a": 1, "b": [1, 2]}', True), ('{"a":1}', False), ('{ "a": 1}', False), ('{"a":  1}', False),
        ('{"a": 1 }', False), ('{"a": 1,\n"b": 2}', False), (' {"a": 1}', False), ('{"a": 1}\n', False),
    ):  # fmt: skip
        assert accepts(COMPILER.compile(JsonObject()).constraint(), text) == good, text
    inside = constraint({"x-guidance": {"whitespace_flexible": True}, "type": "array"})
    assert not accepts(inside, "[ ]"), "a schema sets options of ours"


# ---- remembering -----------------------------------------------------------------------------------------------------


def test_a_grammar_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = GrammarCompiler(VOCABULARY, remember=2)
    calls: list[str] = []
    real = made._compile
    monkeypatch.setattr(made, "_compile", lambda spec, key: (calls.append(key), real(spec, key))[1])
    a, b, c = (JsonSchema.of({"const": i}) for i in range(3))
    assert made.compile(a) is made.compile(a)
    made.compile(b)
    made.compile(a)
    made.compile(c)  # b is the one not used for longest
    assert len(calls) == 3
    made.compile(a)
    assert len(calls) == 3
    made.compile(b)
    assert len(calls) == 4
    assert len(made._known) == 2


def test_large_grammars_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [JsonSchema.of({"const": "x" * 300, "title": str(i)}) for i in range(8)]
    made = GrammarCompiler(VOCABULARY)
    for spec in specs:
        made.compile(spec)
    assert len(made._known) == 8  # the control: without the bound all are kept
    monkeypatch.setattr("samebits.structured.compiler.MOST_KEPT", 1000)
    made.compile(specs[0])
    made.compile(JsonSchema.of({"const": 1}))
    assert made._size == sum(spec_size(grammar.spec) for grammar in made._known.values()) <= 1000
    assert 1 < len(made._known) < 8


def test_a_schema_that_is_too_large_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [{"anyOf": [{"properties": {f"k{i}{j}": {"type": "string"}}} for j in range(10)]} for i in range(12)]
    tries: list[str] = []
    real = COMPILER._try
    monkeypatch.setattr(COMPILER, "_try", lambda text: (tries.append(text), real(text))[1])
    with pytest.raises(InputError, match="schema too large"):
        COMPILER.compile(JsonSchema.of({"allOf": parts}))
    assert len(tries) == 1


def test_digests_tell_requests_apart() -> None:
    texts = ('{"properties":{"a":{},"b":{}}}', '{"properties":{"b":{},"a":{}}}', '{"properties": {"a":{},"b":{}}}')
    specs = [*map(JsonSchema, texts), JsonSchema(texts[0], strict=False), JsonObject(), Regex("a"), Lark('start: "a"')]
    digests = [COMPILER.compile(s).digest for s in specs]
    assert len(set(digests)) == len(specs)
    assert digests == [GrammarCompiler(VOCABULARY).compile(s).digest for s in specs]


def test_the_digest_holds_what_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Choice(("a",))
    first = GrammarCompiler(VOCABULARY).compile(spec).digest
    monkeypatch.setattr(compiler.llguidance, "get_version", lambda: "another")
    assert GrammarCompiler(VOCABULARY).compile(spec).digest != first
    monkeypatch.undo()
    monkeypatch.setitem(compiler.GRAMMAR_OPTIONS, "key_separator", ":")
    assert GrammarCompiler(VOCABULARY).compile(spec).digest != first


def test_many_threads_compile_at_once() -> None:
    made = GrammarCompiler(VOCABULARY, remember=4)
    schemas = [{"type": "array", "items": {"const": i}, "minItems": 1, "maxItems": 1} for i in range(8)]
    wrong: list[Any] = []

    def work(offset: int) -> None:
        for i in range(40):
            which = (i * 3 + offset) % 8
            follow = made.compile(JsonSchema.of(schemas[which])).constraint()
            if not accepts(follow, f"[{which}]"):
                wrong.append((offset, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _optional(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(count)}}


@pytest.mark.parametrize(
    "around",
    [
        lambda wide: wide,
        lambda wide: {"type": "array", "items": wide},
        lambda wide: {"type": "object", "properties": {"a": wide}, "required": ["a"], "additionalProperties": False},
        lambda wide: {"$ref": "#/$defs/a", "$defs": {"a": wide}},
        lambda wide: {"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": wide}},
    ],
)
def test_too_many_optional_properties_are_refused_when_compiled(around: Any) -> None:
    with pytest.raises(InputError, match=r"^json_schema: .*the limit of 2000.*optional properties"):
        COMPILER.compile(JsonSchema.of(around(_optional(520))))
    COMPILER.compile(JsonSchema.of(around(_optional(400))))
    required = _optional(520)
    COMPILER.compile(JsonSchema.of(around(required | {"required": list(required["properties"])})))
