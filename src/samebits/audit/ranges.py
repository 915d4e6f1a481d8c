"""Numbers that a result may hold, as types: where a result is read back, what lies beyond them is refused by name."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

MOST: Final = 2**53 - 1  # up to here every reader of JSON has the same integers

# 0 to 1.
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
# A finite number from 0: seconds, means of counts.
Positive = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
# How many, or the which-th.
Count = Annotated[int, Field(strict=True, ge=0, le=MOST)]


def _not_below_0(value: float) -> float:
    if value < 0:
        raise ValueError(f"{value} is below 0")
    return value


# Logarithms, and distances between them. What JSON has no number for is there as a text: a target may tell anything.
Nats = float
Distance = Annotated[Nats, AfterValidator(_not_below_0)]
