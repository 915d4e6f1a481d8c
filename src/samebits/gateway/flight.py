"""One computation for all who ask the same at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Chunk = dict[str, Any]


class Flight(Generic[T]):
    """A computation in a task of its own, which lives as long as somebody waits for it.

    Who started it may leave; it is cancelled when nobody is left.

    Args:
        work: the computation; it hands out chunks, if it has any, by the function that it is given.
    """

    def __init__(self, work: Callable[[Callable[[Chunk], None]], Awaitable[T]]) -> None:
        self._chunks: asyncio.Queue[Chunk | None] = asyncio.Queue()
        self._waiting = 0
        self._given_up = False
        self._task = asyncio.create_task(self._run(work))

    async def _run(self, work: Callable[[Callable[[Chunk], None]], Awaitable[T]]) -> T:
        try:
            return await work(self._chunks.put_nowait)
        finally:
            self._chunks.put_nowait(None)

    @property
    def over(self) -> bool:
        """Whether it has ended or was given up."""
        return self._given_up or self._task.done()

    def enter(self) -> None:
        """Somebody waits for it."""
        self._waiting += 1

    def leave(self) -> None:
        """Somebody does not wait any longer. The last one to leave ends it."""
        self._waiting -= 1
        if not self._waiting and not self._task.done():
            self._given_up = True
            self._task.cancel()

    def when_over(self, call: Callable[[], None]) -> None:
        """Calls something once it has ended. An error that nobody waits for is not reported as lost."""

        def ended(task: asyncio.Task[T]) -> None:
            if not task.cancelled():
                task.exception()
            call()

        self._task.add_done_callback(ended)

    async def result(self) -> T:
        """What it comes to; whoever waits may be cancelled without harm to it.

        Raises:
            Exception: what it raised.
        """
        return await asyncio.shield(self._task)

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Its chunks as they come; for one reader."""
        while (chunk := await self._chunks.get()) is not None:
            yield chunk


class Flights(Generic[T]):
    """Those under way, by key."""

    def __init__(self) -> None:
        self._open: dict[str, Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def find(self, key: str) -> Flight[T] | None:
        """The one of a key that can be joined."""
        flight = self._open.get(key)
        return None if flight is None or flight.over else flight

    def add(self, key: str, flight: Flight[T]) -> None:
        """Makes one known under a key, until it has ended."""
        self._open[key] = flight

        def forget() -> None:
            if self._open.get(key) is flight:
                del self._open[key]

        flight.when_over(forget)
