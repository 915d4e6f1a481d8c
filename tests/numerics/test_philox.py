"""Philox4x32-10 against the vectors published with Random123 (tests/kat_vectors)."""

from __future__ import annotations

import pytest

from samebits.errors import InputError
from samebits.numerics import philox4x32, random_u64

VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "output"), VECTORS)
def test_published_vectors(counter: str, key: str, output: str) -> None:
    c, k, expected = ([int(word, 16) for word in text.split()] for text in (counter, key, output))
    assert philox4x32((c[0], c[1], c[2], c[3]), (k[0], k[1])) == tuple(expected)


def test_draw_takes_the_seed_as_twos_complement_and_the_low_word_first() -> None:
    assert random_u64(0, 0, 0) == 0xE169C58D_6627E8D5
    assert random_u64(-1, 5, 2) == _draw((5, 0, 2, 0), (0xFFFFFFFF, 0xFFFFFFFF))
    assert random_u64(2**63 - 1, 0, 0) == _draw((0, 0, 0, 0), (0xFFFFFFFF, 0x7FFFFFFF))
    assert random_u64(-(2**63), 0, 0) == _draw((0, 0, 0, 0), (0, 0x80000000))


def test_seeds_tokens_and_choices_give_different_numbers() -> None:
    draws = {random_u64(s, t, c) for s in (-1, 0, 1, 2**32) for t in range(8) for c in range(8)}
    assert len(draws) == 4 * 8 * 8


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((2**63, 0, 0), "seed"),
        ((-(2**63) - 1, 0, 0), "seed"),
        ((0, -1, 0), "token_index"),
        ((0, 0, 2**32), "choice"),
    ],
)
def test_out_of_range(arguments: tuple[int, int, int], field: str) -> None:
    with pytest.raises(InputError, match=field):
        random_u64(*arguments)


def _draw(counter: tuple[int, int, int, int], key: tuple[int, int]) -> int:
    words = philox4x32(counter, key)
    return words[0] | words[1] << 32
