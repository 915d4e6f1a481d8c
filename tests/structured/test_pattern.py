"""Patterns mean the same to the grammar and to the judge, over characters on which dialects differ."""

from __future__ import annotations

import json

import llguidance
import pytest
from writers import VOCABULARY, accepts, constraint

from samebits.errors import OutputInvalid
from samebits.structured import JsonSchema, validate
from samebits.structured.grammar import HEAD
from samebits.structured.pattern import PatternError, to_engine

CHARACTERS = 'ab1_ \t\n\r\x0b\x0c\x85\xa0\ufeff\u2028\u3000é٢\U0001f600-K\u212aß"\\/&~[]^$.#:'
PATTERNS = (
    r"^\d$", r"^\D$", r"^\w$", r"^\W$", r"^\s$", r"^\S$", r"^.$", r"^[^a]$", r"^[\s]$", r"^[^\s]$", r"^[\w-]$",
    r"^[a&&b]$", r"^[a~~b]$", r"^[[a]$", r"^[[:alpha:]]$", r"^[+--]$",
    r"^[\]]$", r"^[.]$", r"^[$^]$", r"^\/$", r"^\u0061$", r"^\x61$", r"^\t$", r"^\cj$", r"^(?:a|b)$", r"^(?<n>a)$",
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
