"""How the answers of peers differ from ours in fields that OpenAI defines, each with the reason.

A difference that is not here fails the comparison, and so does a row that is not met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One that is known.

    Attributes:
        where: the kind of answer, for streams with the place; for a status the name of the case.
        path: of the field; ``status`` for the HTTP status.
        ours, theirs: JSON types, or statuses.
        why: the reason.
    """

    where: str
    path: str
    ours: str
    theirs: str
    why: str


DIFFERENCES: Mapping[str, tuple[Difference, ...]] = {"llama.cpp": ()}
