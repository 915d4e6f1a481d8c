"""Answers that are kept: the newest used, for a time by a clock that never goes back."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from samebits.gateway.json_body import is_kept, read_answer, write_json
from samebits.gateway.settings import CacheConfig

OVERHEAD: Final = 1024  # bytes of an entry beside its answer


@dataclass(frozen=True)
class Entry:
    """A kept answer.

    Attributes:
        tenant: whose it is.
        answer: JSON.
        stored: seconds of the cache's clock.
        exact: whether it has numbers that only the slower reader keeps.
    """

    tenant: str
    answer: bytes
    stored: float
    exact: bool = False

    @property
    def size(self) -> int:
        """Bytes that it counts for."""
        return len(self.answer) + OVERHEAD

    def read(self) -> dict[str, Any]:
        """The answer; each call gives a value of its own."""
        value: dict[str, Any] = read_answer(self.answer) if self.exact else orjson.loads(self.answer)
        return value


@dataclass
class CacheCounts:
    """What a cache did since it was made."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    evicted: int = 0
    expired: int = 0


class Cache:
    """Complete answers by key. Not for several threads: it belongs to one event loop.

    Args:
        clock: seconds, monotonic: ages do not follow the wall clock.
    """

    def __init__(self, config: CacheConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.counts = CacheCounts()
        self.bytes = 0
        self._clock = clock
        self._entries: OrderedDict[str, Entry] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Entry | None:
        """The answer of a key, which thereby becomes the most recently used; None where there is none, or too old."""
        entry = self._entries.get(key)
        if entry is not None and self._clock() - entry.stored >= self.config.ttl:
            self._remove(key)
            self.counts.expired += 1
            entry = None
        if entry is None:
            self.counts.misses += 1
            return None
        self._entries.move_to_end(key)
        self.counts.hits += 1
        return entry

    def peek(self, key: str) -> float | None:
        """The age in seconds of a key's answer, without using it; None where there is none, or too old."""
        entry = self._entries.get(key)
        age = None if entry is None else self._clock() - entry.stored
        return None if age is None or age >= self.config.ttl else age

    def put(self, key: str, tenant: str, answer: Mapping[str, Any]) -> bool:
        """Keeps an answer, at the cost of those that were not used for longest; returns whether it fits at all."""
        data = write_json(answer)
        entry = Entry(tenant, data, self._clock(), exact=not is_kept(data))
        if entry.size > self.config.bytes:
            return False
        if key in self._entries:
            self._remove(key)
        self._entries[key] = entry
        self.bytes += entry.size
        self.counts.stored += 1
        while self.bytes > self.config.bytes or len(self._entries) > self.config.entries:
            self._remove(next(iter(self._entries)))
            self.counts.evicted += 1
        return True

    def clear(self, tenant: str) -> int:
        """Forgets the answers of a tenant; returns how many."""
        keys = [key for key, entry in self._entries.items() if entry.tenant == tenant]
        for key in keys:
            self._remove(key)
        return len(keys)

    def count(self, tenant: str) -> int:
        """Answers of a tenant."""
        return sum(entry.tenant == tenant for entry in self._entries.values())

    def _remove(self, key: str) -> None:
        self.bytes -= self._entries.pop(key).size
