"""Where two answers part: the first place at which they differ, over all pairs of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from samebits.audit.observation import Observation
from samebits.audit.ranges import Count

Unit = Literal["token ids", "tokens", "characters"]
# A text, token ids or token texts.
Items = str | tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Divergence:
    """First differences of all pairs of runs of a prompt.

    Attributes:
        unit: what is counted: token ids or token texts where every run has them, else characters.
        equal_pairs: pairs that never part.
        places: first differing places, ascending, from 0; where one answer is the beginning of another, its length.
        pairs: for each place, the pairs that part there.
    """

    unit: Unit
    equal_pairs: Count
    places: tuple[Count, ...]
    pairs: tuple[Count, ...]

    def __post_init__(self) -> None:
        if len(self.places) != len(self.pairs):
            raise ValueError("places and pairs have different lengths")

    @property
    def all_pairs(self) -> int:
        """Pairs of runs."""
        return self.equal_pairs + sum(self.pairs)

    @property
    def first(self) -> int | None:
        """The earliest place; None where all are equal."""
        return self.places[0] if self.places else None

    def survival(self, length: int) -> float:
        """Share of pairs that agree in the first `length` places, or as far as both go."""
        if self.all_pairs == 0:
            return 1.0
        parted = sum(n for place, n in zip(self.places, self.pairs, strict=True) if place < length)
        return 1 - parted / self.all_pairs


def common_prefix(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Length of the longest common beginning."""
    if a == b:
        return len(a)
    shortest = min(len(a), len(b))
    return next((i for i in range(shortest) if a[i] != b[i]), shortest)


def divergence(observations: Sequence[Observation]) -> Divergence:
    """First differences among the runs of one prompt that did not fail; all pairs, each once."""
    answered = [o for o in observations if o.text is not None]
    unit = unit_of(answered)
    return count_divergence(unit, Counter(items_of(o, unit) for o in answered))


def unit_of(answered: Sequence[Observation]) -> Unit:
    """What is counted in these answers: token ids or token texts where all have them, else characters."""
    if all(o.token_ids is not None for o in answered):
        return "token ids"
    return "tokens" if all(o.tokens is not None for o in answered) else "characters"


def items_of(answer: Observation, unit: Unit) -> Items:
    """An answer as what is counted."""
    found = {"token ids": answer.token_ids, "tokens": answer.tokens, "characters": answer.text}[unit]
    assert found is not None, "the unit is not one of this answer"
    return found


def count_divergence(unit: Unit, counts: Mapping[Any, int]) -> Divergence:
    """First differences among Items of one kind, each with the number of runs that gave it.

    In sorted order, two sequences part where the least of the common beginnings between them ends. So neighbours are
    joined in order of falling common beginning, and each join adds the pairs across it: K log K for K sequences.
    """
    ordered = sorted(counts)
    sizes = [counts[items] for items in ordered]
    equal = sum(n * (n - 1) // 2 for n in sizes)
    joins = [(common_prefix(a, b), i) for i, (a, b) in enumerate(pairwise(ordered))]
    parent = list(range(len(ordered)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    found: Counter[int] = Counter()
    for place, i in sorted(joins, reverse=True):
        left, right = root(i), root(i + 1)
        found[place] += sizes[left] * sizes[right]
        parent[right] = left
        sizes[left] += sizes[right]
    places = tuple(sorted(found))
    return Divergence(unit, equal, places, tuple(found[place] for place in places))
