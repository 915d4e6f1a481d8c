"""Grammars at work: what llguidance knows of a vocabulary, and the constraint of one output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, Self

import llguidance
import numpy as np
import numpy.typing as npt

from samebits.errors import ConstraintError
from samebits.models.tokenizer import Tokenizer

# Stands before every grammar: no text is forced (see compiler.py).
HEAD: Final = '%llguidance {"no_forcing": true}\n'

# Bounds on the work for one token, so that one request cannot hold up the step that it shares with others: a mask that
# needs all of it takes about 20 ms. They count operations, not time, and every fork counts for itself.
LIMITS: Final = llguidance.LLParserLimits(
    max_items_in_row=2_000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=500_000,
    precompute_large_lexemes=True,
    verbose_errors=False,
)


class Vocabulary:
    """The tokens of a model as bytes.

    Special tokens are no text: none is allowed by a grammar, and of the end-of-text ids none but where it may end.

    Attributes:
        size: V, rows of the model; ids without a token are never allowed.
        sayable: whether each id (V,) is text or an end.
        text: whether each id (V,) is no end.
        backend: the tokens for llguidance.
    """

    def __init__(self, tokens: Sequence[bytes], special_ids: frozenset[int], eos_ids: Sequence[int]) -> None:
        self.size = len(tokens)
        # llguidance wants an end-of-text token; a model without one gets an id that it does not have.
        ends = list(eos_ids) or [self.size]
        extended = [*tokens, *([] if eos_ids else [b""])]
        self.backend = llguidance.LLTokenizer(
            _Tokens(extended, ends[0], sorted(special_ids.union(ends))), n_vocab=len(extended), eos_token=ends
        )
        self.sayable = np.ones(self.size, np.bool_)
        self.sayable[sorted(special_ids.difference(eos_ids))] = False
        self.text = np.ones(self.size, np.bool_)
        self.text[list(eos_ids)] = False

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int]) -> Vocabulary:
        """That of a model whose logits have ``vocab_size`` columns."""
        tokens = [tokenizer.token_bytes(i) for i in range(vocab_size)]
        special = frozenset(i for i in tokenizer.special_ids if i < vocab_size)
        return cls(tokens, special, [i for i in eos_ids if i < vocab_size])

    @cached_property
    def words(self) -> int:
        """32-bit words of a mask."""
        return -(-self.backend.vocab_size // 32)


class GrammarConstraint:
    """A grammar, and what has been said so far. Implements ``samebits.engine.Constraint``."""

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._allowed: npt.NDArray[np.bool_] | None = None

    @property
    def vocab_size(self) -> int:
        return self._vocabulary.size

    def fork(self) -> Self:
        return type(self)(self._matcher.deep_copy(), self._vocabulary)

    def allowed(self) -> npt.NDArray[np.bool_]:
        if self._allowed is None:
            self._allowed = self._compute()
        return self._allowed

    def accept(self, token_id: int) -> None:
        self._allowed = None
        if not self._matcher.consume_token(token_id):
            raise ConstraintError(f"the constraint cannot go on after token {token_id}: {self._fault()}")

    @property
    def may_end(self) -> bool:
        """Whether what was said is complete, though more may be allowed."""
        return bool(self._matcher.is_accepting())

    @property
    def finished(self) -> bool:
        if self._matcher.is_stopped():
            if not self.may_end:  # a fault, or a place from which nothing leads to an end
                raise ConstraintError(f"the constraint cannot go on: {self._fault()}")
            return True
        # Some grammars see their end only when asked what could follow.
        return self.may_end and not (self.allowed() & self._vocabulary.text).any()

    def _compute(self) -> npt.NDArray[np.bool_]:
        bits = np.zeros(self._vocabulary.words, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if self._matcher.is_error():  # the mask is then that of an end, which is not what the grammar says
            if self._fault() == "NoExtensionBias":  # it was found that nothing can follow
                return np.zeros(self._vocabulary.size, np.bool_)
            raise ConstraintError(f"the constraint cannot tell what may follow: {self._fault()}")
        allowed = np.unpackbits(bits.view(np.uint8), bitorder="little")[: self._vocabulary.size].view(np.bool_)
        return allowed & self._vocabulary.sayable

    def _fault(self) -> str:
        return first_line(self._matcher.get_error()) or "it is not allowed"


def first_line(message: str) -> str:
    """The part of a message of llguidance that is meant for people."""
    return message.split("\n", 1)[0].strip()


class _Tokens(llguidance.TokenizerWrapper):
    """The shape in which LLTokenizer takes a vocabulary. It is never asked to cut text into tokens, since no text is
    forced (see compiler.py)."""

    def __init__(self, tokens: list[bytes], eos_id: int, special_ids: list[int]) -> None:
        self.is_tokenizer_wrapper = True
        self.bos_token_id = None
        self.tokens = tokens
        self.eos_token_id = eos_id
        self.special_token_ids = special_ids

    def __call__(self, text: str) -> list[int]:
        raise AssertionError(f"a grammar asked for the tokens of {text!r}")
