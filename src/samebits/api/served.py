"""A model that is served."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.engine.driver import Driver
from samebits.llm import LLM


@dataclass(frozen=True)
class Served:
    """A model, ready to answer.

    Attributes:
        created: when it was loaded, in seconds since 1970.
    """

    name: str
    llm: LLM
    driver: Driver
    fingerprint: str
    created: int
