"""Sets of positions, kept as spans, so that a million pruned records take no more room than one."""

from __future__ import annotations

from collections.abc import Iterator


class Spans:
    """A set of positive integers; both ends of a span belong to it."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, position: int) -> None:
        """Adds one; cheap where positions come in ascending order."""
        self.add_span(position, position)

    def add_span(self, first: int, last: int) -> None:
        """Adds all from first to last; nothing where first is greater."""
        if first > last:
            return
        if not self._spans or first > self._spans[-1][1] + 1:
            self._spans.append((first, last))
            return
        if first >= self._spans[-1][0]:
            self._spans[-1] = (self._spans[-1][0], max(self._spans[-1][1], last))
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self._spans, (first, last)]):
            if merged and begin <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((begin, end))
        self._spans = merged

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._spans)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._spans)

    def minus(self, other: Spans) -> Iterator[tuple[int, int]]:
        """The spans of what is here and not there."""
        for first, last in self._spans:
            for begin, end in other:
                if end < first or begin > last:
                    continue
                if begin > first:
                    yield first, begin - 1
                first = end + 1
                if first > last:
                    break
            if first <= last:
                yield first, last
