"""Numbers of a schema. The grammar compiler computes with binary64; what that cannot hold exactly is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

MAX_EXACT: Final = 2**53  # up to here every integer is a binary64


def exact(value: int | Decimal) -> int | float:
    """The number as an int where it is one, else as the float that is written with the same digits.

    Raises:
        ValueError: an integer beyond 2⁵³, or more digits than a float has.
    """
    if not -MAX_EXACT <= value <= MAX_EXACT:
        raise ValueError(f"is {value!s:.40}, beyond ±2^53")
    if value == int(value):
        return int(value)
    if Decimal(repr(float(value))) != value:
        raise ValueError(f"is {value!s:.40}, which no binary64 holds")
    return float(value)
