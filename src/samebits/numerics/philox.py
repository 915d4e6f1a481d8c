"""Philox4x32-10, the counter-based generator of section 4.1 of docs/numerics.md.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11. Plain integers:
one draw a token needs no speed.
"""

from __future__ import annotations

from samebits.errors import InputError

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # golden ratio and sqrt(3) − 1, the paper's Weyl sequence
_ROUNDS = 10
_MASK = 0xFFFFFFFF

Words = tuple[int, int, int, int]


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Return the four 32-bit words for a counter of four words and a key of two."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * x0, _MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (second >> 32) ^ x1 ^ k0, second & _MASK, (first >> 32) ^ x3 ^ k1, first & _MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return x0, x1, x2, x3


def random_u64(seed: int, token_index: int, choice: int) -> int:
    """Return the uniform 64-bit number that draws token `token_index` of choice `choice` of a request.

    Raises:
        InputError: `seed` is outside −2⁶³ … 2⁶³ − 1, or an index is outside 0 … 2³² − 1.
    """
    if not -(2**63) <= seed < 2**63:
        raise InputError(f"{seed} does not fit 64 bits", field="seed", remedy="Use -2**63 ... 2**63-1.")
    for field, value in (("token_index", token_index), ("choice", choice)):
        if not 0 <= value <= _MASK:
            raise InputError(f"{value} does not fit 32 bits", field=field, remedy="Use 0 ... 2**32-1.")
    word0, word1, _, _ = philox4x32((token_index, 0, choice, 0), (seed & _MASK, (seed >> 32) & _MASK))
    return word0 + (word1 << 32)
