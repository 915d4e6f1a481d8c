"""What to compute next: a pure function of what waits, what runs and how many pages are left.

Nothing here can reach a bit of any answer (docs/numerics.md); it decides only speed and fairness.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a step.

    Attributes:
        max_batch: most sequences that run at once.
        chunk: most rows (tokens) computed in one step; longer prompts are cut.
        page_size: tokens in a page.
    """

    max_batch: int
    chunk: int
    page_size: int

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)


@dataclass(frozen=True, slots=True)
class View:
    """A sequence as the scheduler sees it.

    Attributes:
        key: identifies the sequence.
        computed: tokens whose keys and values are stored (for a waiting one: found in the prefix cache).
        total: tokens known: prompt and output so far.
        pages: pages held; empty for a waiting one.
        shared: for a waiting one: of the pages found, those that a running sequence holds, which cost nothing.
    """

    key: int
    computed: int
    total: int
    pages: Sequence[int] = ()
    shared: int = 0


@dataclass(frozen=True)
class Plan:
    """A step: ``rows`` (key, tokens to compute), sequences to admit, sequences to preempt (before anything else)."""

    rows: tuple[tuple[int, int], ...]
    admitted: tuple[int, ...]
    preempted: tuple[int, ...]


def plan_step(running: Sequence[View], waiting: Iterable[View], available: int, limits: Limits) -> Plan:
    """Plans one step.

    Sequences that decode (one token left) go first, then prompts, each oldest first. When pages run out, the youngest
    running sequence is preempted, so the oldest always advances. Waiting sequences are admitted in order, only in a
    step that preempted nothing, and only if all their tokens find room: one admitted for its first chunk alone could be
    preempted and computed again and again. ``waiting`` is read no further than the first that is not admitted.
    """
    preempted: list[int] = []
    rows: dict[int, int] = {}
    alive = list(running)
    holders: Counter[int] | None = None  # of each page; counted only where something is preempted
    budget = limits.chunk
    queue = sorted(alive, key=lambda v: v.total - v.computed != 1)  # stable: oldest first within both
    for view in queue:
        if budget == 0:
            break
        if view.key in preempted:
            continue
        count = min(view.total - view.computed, budget)
        needed = limits.pages_for(view.computed + count) - len(view.pages)
        while needed > available and view.key not in preempted:
            victim = alive.pop()  # the youngest; at last the view itself, which then waits in its turn
            preempted.append(victim.key)
            if dropped := rows.pop(victim.key, 0):  # it was to decode: its row and the page it may have taken come back
                budget += dropped
                available += limits.pages_for(victim.computed + dropped) - len(victim.pages)
            if holders is None:
                holders = Counter(page for v in running for page in v.pages)
            for page in victim.pages:
                holders[page] -= 1
                available += holders[page] == 0
        if view.key in preempted:
            continue
        available -= needed
        budget -= count
        rows[view.key] = count

    admitted: list[int] = []
    if not preempted and budget:  # so every running prompt is computed to its end, and needs no more room than it has
        for view in itertools.islice(waiting, limits.max_batch - len(alive)):
            needed = limits.pages_for(view.total) - view.shared
            if needed > available:
                break
            count = min(view.total - view.computed, budget)
            available -= needed
            budget -= count
            admitted.append(view.key)
            rows[view.key] = count
            if budget == 0:
                break
    return Plan(tuple(rows.items()), tuple(admitted), tuple(preempted))
