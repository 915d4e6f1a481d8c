"""Patterns mean the same to the grammar and to the judge, over characters on which dialects differ."""

from __future__ import annotations

import json

import llguidance
import pytest
from hypothesis import given
from hypothesis import strategies as st
from writers import VOCABULARY, accepts, constraint, refusal

from samebits.errors import OutputInvalid
from samebits.structured import JsonSchema, validate
from samebits.structured.grammar import HEAD
from samebits.structured.pattern import PatternError, pattern_size, to_engine

CHARACTERS = 'ab1_ \t\n\r\x0b\x0c\x85\xa0\ufeff\u2028\u3000é٢\U0001f600-K\u212aß"\\/&~[]^$.#:'
PATTERNS = (
    r"^\d$", r"^\D$", r"^\w$", r"^\W$", r"^\s$", r"^\S$", r"^.$", r"^[^a]$", r"^[\s]$", r"^[^\s]$", r"^[\w-]$",
    r"^[a&&b]$", r"^[a~~b]$", r"^[[a]$", r"^[[:alpha:]]$", r"^[+--]$",
    r"^[\]]$", r"^[.]$", r"^[$^]$", r"^\/$", r"^\u0061$", r"^\x61$", r"^\t$", r"^\cj$", r"^(?:a|b)$", r"^(?<n>a)$",
    r'^[^"]$', r"^[^\\]$", r'^[^"\\]*$', r"^[\x00-\x1f]$", r"^[\x00-\u005b]$", r"^[\v\f\n]$", r"^\p{Cc}$",
    r"^\P{L}$", r"^[\p{C}a]$",
    r"^(\x01|a)$", r"^[\x7f\u00e9]$", r"^\x01*b$", r"^\v?a$",
    r"^a?$", r"a|^b$", r"^\p{L}$", r"^#$", r"^$", r"^\.$", r"\\",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_both_engines_agree(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    start, seen = constraint(schema), set()
    for text in (*CHARACTERS, "", "ab", "a\n", "aa", "a]"):
        try:
            validate(json.dumps(text), JsonSchema.of(schema))
            expected = True
        except OutputInvalid:
            expected = False
        if text == "\x7f" or (text < " " and text not in "\t\n\r\x0c"):
            continue  # cannot be written without an escape of the long form
        seen.add(expected)
        assert accepts(start.fork(), json.dumps(text, ensure_ascii=False)) == expected, repr(text)
    assert seen == {True, False}, "not exercised: the pattern tells nothing apart"


def test_control_untranslated_patterns_differ() -> None:
    lark = HEAD + r'start: %json {"type":"string","pattern":"^.$"}'
    matcher = llguidance.LLMatcher(VOCABULARY.backend, lark, log_level=0)
    assert matcher.try_consume_tokens(list('"\u2028"'.encode())) == 5
    assert not accepts(constraint({"type": "string", "pattern": "^.$"}), '"\u2028"')


def test_control_sets_of_all_control_characters_differ_as_they_are() -> None:
    """The engine then takes them for sets with the quote and the backslash, and judge and grammar part."""
    for pattern in ('^[^"]$', r"^\p{Cc}$"):
        schema = json.dumps({"type": "string", "pattern": pattern})
        matcher = llguidance.LLMatcher(VOCABULARY.backend, f"{HEAD}start: %json {schema}", log_level=0)
        assert matcher.try_consume_tokens(list(b'"\\""')) == 4
        assert not accepts(constraint({"type": "string", "pattern": pattern}), '"\\""')


@pytest.mark.parametrize(
    "pattern", [r"^\x01$", r"^a\u0001b$", "^\x1fa$", r"^[\v]a$", r"^\x7fa$", r"^\cA+$", r"^[\x00-\x07]b$"]
)
def test_what_only_a_control_character_matches_is_refused(pattern: str) -> None:
    assert "no text in this model's tokens" in refusal({"type": "string", "pattern": pattern})


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?i)a",
        "(?i:a)",
        r"(a)\1",
        r"(?<n>a)\k<n>",
        r"\bfoo",
        r"\B",
        "[]",
        "[^]",
        r"[\S]",
    ],
)
def test_what_cannot_be_enforced_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        to_engine(pattern)


def test_groups_are_limited() -> None:
    assert to_engine("(" * 100 + "a" + ")" * 100).count("(") == 100
    with pytest.raises(PatternError, match="more than 100 groups"):
        to_engine("(" * 101 + "a" + ")" * 101)
    assert to_engine("[(((]" * 50 + r"\(" * 200)


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("a*b+c?", 3),
        ("a{5}", 5),
        ("a{2,7}", 7),
        ("a{3,}", 3),
        ("a{0}", 1),
        ("ab{3}", 4),
        ("(ab){3}", 6),
        ("(a{10}b){10}", 110),
        ("(((a{9}){9}){9}){9}", 6561),
        ("(?:a{2}|b{3}){2}", 12),
        ("(?<n>a){4}", 4),
        (r"\(a\){3}", 41),
        (r"[{3}]{2}", 26),
        (r"[\]{3}]{2}", 30),
        ("a{,3}", 5),
    ],
)
def test_the_size_of_a_pattern_counts_repetitions(pattern: str, size: int) -> None:
    assert pattern_size(pattern) == size


@given(st.text("ab.(){}[]|*+?\\12,^$pL", max_size=60))
def test_every_text_has_a_size(pattern: str) -> None:
    assert pattern_size(pattern) >= 0
