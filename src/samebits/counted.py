"""Numbers before nouns and verbs, as English has them: 1 run has, 2 runs have."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts; the plural is the noun with an s where none is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def verb(number: int, singular: str, plural: str) -> str:
    """The form of a verb that goes with so many."""
    return singular if number == 1 else plural


def part(number: int, whole: int, noun: str, singular: str = "", plural: str = "") -> str:
    """So many of a whole, with the verb that follows if there is one: 1 of 8 runs departs."""
    said = f"{number:,} of {counted(whole, noun)}"
    return f"{said} {verb(number, singular, plural)}" if singular else said
