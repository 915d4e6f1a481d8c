"""A small vocabulary, and writers that fill a grammar with what comes to their mind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from samebits.errors import InputError
from samebits.structured import GrammarCompiler, GrammarConstraint, JsonSchema, Vocabulary

# Every byte, some tokens of several bytes (also one that spans parts of JSON, and the halves of a character), one whose
# bytes another id has too, and two that are no text.
WORDS = (
    '{"',
    '": ',
    ": ",
    '", "',
    '"}',
    "}}",
    "]]",
    ", ",
    "true",
    "false",
    "null",
    "name",
    "12",
    "00",
    "\\",
    "\\n",
    "  ",
    "é",
)
TOKENS = (*(bytes([b]) for b in range(256)), *(word.encode() for word in WORDS), b"\xf0\x9f", b"\x98\x80", b"a")
TURN, EOS = len(TOKENS), len(TOKENS) + 1
UNUSED = len(TOKENS) + 2  # a row of the model without a token
SIZE = len(TOKENS) + 3
VOCABULARY = Vocabulary([*TOKENS, b"<turn>", b"<eos>", b""], frozenset({TURN, EOS}), (EOS,))
COMPILER = GrammarCompiler(VOCABULARY)

Choose = Callable[[np.ndarray], int]


@dataclass(frozen=True)
class Written:
    """A text, and whether its writer came to an end."""

    text: str
    ended: bool


def constraint(schema: Any, **options: Any) -> GrammarConstraint:
    """The constraint of a schema, at its beginning."""
    return COMPILER.compile(JsonSchema.of(schema, **options)).constraint()


def write(follow: GrammarConstraint, choose: Choose, most: int = 300) -> Written:
    """Chooses one allowed id after another, as the engine does, up to a number of tokens."""
    out = b""
    for _ in range(most):
        if follow.finished:
            return Written(out.decode(), True)
        allowed = np.flatnonzero(follow.allowed())
        assert allowed.size, f"nothing is allowed after {out!r}"
        token = choose(allowed)
        if token == EOS:
            return Written(out.decode(), True)
        follow.accept(token)
        out += TOKENS[token]
    return Written(out.decode("utf-8", "ignore"), follow.finished)


def at_random(seed: int) -> Choose:
    """Anything, but half of the time what may close something, so that texts end."""
    rng = random.Random(seed)
    closing = {EOS, *(TOKENS.index(t.encode()) for t in ('"', "}", "]", '"}', ": ", ", ", '": ', "0", "1"))}

    def choose(allowed: np.ndarray) -> int:
        likely = [t for t in allowed.tolist() if t in closing]
        return rng.choice(likely if likely and rng.random() < 0.5 else allowed.tolist())

    return choose


def accepts(follow: GrammarConstraint, text: str) -> bool:
    """Whether a text is one of the grammar, byte by byte. Spends the constraint."""
    for byte in text.encode():
        if not follow.allowed()[byte]:
            return False
        follow.accept(byte)
    return follow.may_end


def refusal(schema: Any, **options: Any) -> str:
    """The message with which a schema is refused."""
    with pytest.raises(InputError) as caught:
        constraint(schema, **options)
    assert caught.value.field == "json_schema"
    assert caught.value.remedy
    return str(caught.value)
