"""What penalties look at, kept up token by token, is what counting again gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.engine.history import History

IDS = st.lists(st.integers(0, 9), max_size=12)


def check(kind: type[History], prompt: list[int], pieces: list[list[int]]) -> None:
    history, tokens = kind(), list(prompt)
    for piece in pieces:
        tokens += piece
        history.read(tokens, len(prompt))
        assert sorted(history.seen.tolist()) == sorted(set(tokens))
        assert history.counts == Counter(tokens[len(prompt) :])


@settings(max_examples=300)
@given(IDS, st.lists(IDS, max_size=6))
def test_any_growth(prompt: list[int], pieces: list[list[int]]) -> None:
    check(History, prompt, pieces)


class CountsThePrompt(History):
    def read(self, tokens: Sequence[int], prompt_length: int) -> None:
        super().read(tokens, 0)


class ReadsAgain(History):
    def read(self, tokens: Sequence[int], prompt_length: int) -> None:
        self._read = 0
        super().read(tokens, prompt_length)


@pytest.mark.parametrize("kind", [CountsThePrompt, ReadsAgain])
def test_control_a_wrong_count_is_seen(kind: type[History]) -> None:
    with pytest.raises(AssertionError):
        check(kind, [1, 2], [[3], [3, 4]])
