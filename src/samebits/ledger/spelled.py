"""Numbers of JSON that are no doubles: read with their digits, so that they can be written again as they came."""

from __future__ import annotations

import math
from decimal import Decimal


class Spelled(float):
    """A number with more digits than a double has: the nearest double, and how it was written.

    Attributes:
        text: its JSON.
    """

    def __new__(cls, text: str) -> Spelled:
        self = super().__new__(cls, text)
        self.text = text
        return self

    text: str


def number(text: str) -> float:
    """A number of JSON that is no integer: the double that it is, or else with its spelling."""
    value = float(text)
    shortest = repr(value)
    if shortest == text or math.isinf(value):
        return value
    try:
        return value if Decimal(shortest) == Decimal(text) else Spelled(text)
    except ArithmeticError:  # an exponent of many digits
        return Spelled(text)
