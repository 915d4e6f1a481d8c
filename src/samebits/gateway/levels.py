"""Levels of determinism that a request can be promised."""

from __future__ import annotations

from typing import Final, Literal, get_args

Level = Literal["none", "best-effort", "run", "batch", "portable"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)  # weakest first


def includes(level: Level, asked: Level | None) -> bool:
    """Whether ``level`` is at least what is asked for; nothing asked is always given."""
    return asked is None or LEVELS.index(level) >= LEVELS.index(asked)


def weaker(one: Level, other: Level) -> Level:
    """The weaker of two levels."""
    return min(one, other, key=LEVELS.index)


def stronger(one: Level | None, other: Level | None) -> Level | None:
    """The stronger of two levels; None where neither is given."""
    given = [level for level in (one, other) if level is not None]
    return max(given, key=LEVELS.index, default=None)
