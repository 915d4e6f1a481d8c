"""What a constraint allows is exactly what its grammar can still become; forks share nothing."""

from __future__ import annotations

import numpy as np
import pytest
from writers import COMPILER, EOS, SIZE, TOKENS, TURN, UNUSED, VOCABULARY, accepts, at_random, constraint, write

from samebits.errors import ConstraintError
from samebits.models.load import load_source
from samebits.numerics import assert_bitwise_equal
from samebits.structured import Choice, GrammarConstraint, JsonObject, Lark, Regex, Vocabulary

SCHEMAS = (
    {"type": "object", "properties": {"é": {"type": "integer"}, "b": {"type": "string", "maxLength": 5}}},
    {"type": "array", "items": {"enum": ["a", "\U0001f600", 12, None, True]}, "minItems": 1},
    {"type": "object", "additionalProperties": {"type": "number"}},
    {"type": "string", "pattern": "^(é|aé?)+$"},
)


def by_brute_force(follow: GrammarConstraint) -> np.ndarray:
    """Whether each id can be accepted by a fork, one after another."""
    can = np.zeros(SIZE, np.bool_)
    for token in range(len(TOKENS)):
        try:
            follow.fork().accept(token)
            can[token] = True
        except ConstraintError:
            pass
    can[EOS] = follow.may_end
    return can


@pytest.mark.parametrize("schema", SCHEMAS)
def test_allowed_is_what_can_be_accepted(schema: dict[str, object]) -> None:
    choose, follow, seen = at_random(7), constraint(schema), set()
    for _ in range(12):
        if follow.finished:
            break
        expected = by_brute_force(follow)
        assert_bitwise_equal(follow.allowed(), expected, "allowed")
        seen.add(int(expected.sum()))
        token = choose(np.flatnonzero(expected))
        if token == EOS:
            break
        follow.accept(token)
    assert len(seen) > 2, "not exercised: always the same number of ids was allowed"


def test_ids_with_equal_bytes_are_allowed_together() -> None:
    a, twin = ord("a"), len(TOKENS) - 1
    assert TOKENS[a] == TOKENS[twin]
    for allowed in (True, False):
        follow = constraint({"const": "a" if allowed else "b"})
        follow.accept(ord('"'))
        assert follow.allowed()[a] == follow.allowed()[twin] == allowed


def test_special_tokens_are_no_text() -> None:
    """Neither the name of a special token nor that of an end is text, also inside of a string."""
    follow = constraint({"type": "string"})
    follow.accept(ord('"'))
    allowed = follow.allowed()
    assert allowed[ord("<")]
    assert not allowed[[TURN, EOS, UNUSED]].any()
    plain = Vocabulary([*TOKENS, b"<turn>", b"<eos>", b""], frozenset(), (EOS,))
    assert plain.sayable[TURN], "not exercised: it would be text if it were not special"


def test_a_grammar_that_names_a_special_token_is_refused() -> None:
    with pytest.raises(ValueError, match="names the special token"):
        COMPILER.compile(Lark(f"start: <[{TURN}]>"))


def test_a_fork_and_its_origin_go_separate_ways() -> None:
    origin = COMPILER.compile(Choice(("abc", "abd", "x"))).constraint()
    origin.accept(ord("a"))
    fork = origin.fork()
    before = origin.allowed().copy()
    fork.accept(ord("b"))
    fork.accept(ord("c"))
    assert fork.finished
    assert not origin.finished
    assert_bitwise_equal(origin.allowed(), before, "origin")
    with pytest.raises(ConstraintError):
        origin.fork().accept(ord("c"))
    assert_bitwise_equal(origin.allowed(), before, "origin after a fault in a fork")


def test_what_is_allowed_does_not_hang_on_forks_made_before() -> None:
    """The first fork of a grammar and its hundredth, after others were driven, allow the same at each place."""
    grammar = COMPILER.compile(JsonObject())
    path = b'{"a": {"name": [1, 2.5e3, "\\n\xc3\xa9"]}}'

    def masks() -> np.ndarray:
        follow, rows = grammar.constraint(), []
        for byte in path:
            rows.append(follow.allowed())
            follow.accept(byte)
        return np.stack(rows)

    first = masks()
    for seed in range(20):
        write(grammar.constraint(), at_random(seed))
    assert_bitwise_equal(masks(), first, "allowed")
    assert len(np.unique(first, axis=0)) > 5


def test_finished_and_may_end() -> None:
    follow = COMPILER.compile(Regex("a{1,2}")).constraint()
    states = []
    for _ in range(2):
        follow.accept(ord("a"))
        states.append((follow.may_end, follow.finished, bool(follow.allowed()[EOS])))
    assert states == [(True, False, True), (True, True, True)]


def test_a_dead_end_is_no_end() -> None:
    """A grammar in which nothing leads on from a place, and a text that this model has no tokens for."""
    follow = COMPILER.compile(Lark('start: "a" x\nx: x "b"')).constraint()
    follow.accept(ord("a"))
    assert not follow.may_end
    assert not follow.finished
    assert not follow.allowed().any()
    with pytest.raises(ConstraintError, match="cannot go on"):
        assert follow.finished


def test_a_token_that_is_not_allowed_is_a_fault() -> None:
    follow = constraint({"type": "integer"})
    with pytest.raises(ConstraintError, match="token 120"):
        follow.accept(ord("x"))


def test_a_limit_that_is_exceeded_is_a_fault_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library then offers the mask of an end; taking it would pass a cut text off as a finished one."""
    import llguidance

    from samebits.structured import compiler

    limits = llguidance.LLParserLimits(step_lexer_fuel=1, verbose_errors=False)
    monkeypatch.setattr(compiler, "LIMITS", limits)
    follow = compiler.GrammarCompiler(VOCABULARY).compile(JsonObject()).constraint()
    with pytest.raises(ConstraintError, match="cannot tell what may follow"):
        write(follow, at_random(1))
    with pytest.raises(ConstraintError):
        assert follow.finished


def test_a_model_without_an_end_token_can_finish() -> None:
    vocabulary = Vocabulary(list(TOKENS), frozenset(), ())
    assert vocabulary.size == len(TOKENS)
    from samebits.structured import GrammarCompiler

    follow = GrammarCompiler(vocabulary).compile(Choice(("ab",))).constraint()
    assert follow.allowed().shape == (len(TOKENS),)
    follow.accept(ord("a"))
    follow.accept(ord("b"))
    assert follow.finished


def test_accepts_tells_a_text_from_its_beginning() -> None:
    assert accepts(constraint({"const": [1]}), "[1]")
    assert not accepts(constraint({"const": [1]}), "[1")
    assert not accepts(constraint({"const": [1]}), "[2]")


def test_the_vocabulary_of_a_real_model() -> None:
    """SmolLM2 by its GGUF file: text that its tokenizer makes is allowed token by token."""
    try:
        source = load_source("smollm2")
    except ValueError as error:
        pytest.skip(str(error))
    tokenizer, size = source.tokenizer, source.config.vocab_size
    from samebits.structured import GrammarCompiler

    compiler = GrammarCompiler(Vocabulary.of(tokenizer, size, tokenizer.eos_ids))
    text = '{"name": "Zoë \U0001f600", "ages": [1, 20, -3.5e7], "ok": null}'
    follow = compiler.compile(JsonObject()).constraint()
    ids = tokenizer.encode(text, add_special=False)
    assert len(ids) < len(text)
    for token in ids:
        allowed = follow.allowed()
        assert allowed.shape == (size,)
        assert allowed[token], tokenizer.token_bytes(token)
        assert not allowed[list(tokenizer.special_ids)].any()
        follow.accept(token)
    assert follow.finished
    assert set(np.flatnonzero(follow.allowed()).tolist()) == set(tokenizer.eos_ids)
