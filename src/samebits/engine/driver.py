"""One thread drives the engine; an event loop submits requests, listens, and cancels.

The life of a submission: ``submit`` checks it on the loop and puts it into the thread's inbox → the thread adds it
between two steps → after each step all events of that step go to the loop in one call → the loop sorts them into
submissions and wakes who waits. ``cancel`` takes effect before the next step and frees the pages. A fault of the engine
ends every open submission with EngineFailedError, and every later one.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVarTuple

from samebits.engine.engine import Engine
from samebits.engine.request import Event, Request
from samebits.errors import EngineFailedError, OverloadedError, SamebitsError

log = logging.getLogger(__name__)
Ts = TypeVarTuple("Ts")


class Arrival(NamedTuple):
    """An event, and the index of its request within the submission."""

    request: int
    event: Event


class Submission:
    """Requests that were submitted together. Belongs to the event loop; only ``engine_ids`` is the thread's."""

    def __init__(self, requests: Sequence[Request], cancel: Callable[[Submission], None]) -> None:
        self.requests = tuple(requests)
        self.choices = sum(request.params.n for request in requests)
        self.engine_ids: list[int] = []
        self._unfinished = self.choices
        self._arrivals: list[Arrival] = []
        self._changed = asyncio.Event()
        self._fault: SamebitsError | None = None
        self._cancel = cancel

    @property
    def done(self) -> bool:
        """Whether nothing more can come."""
        return self._unfinished == 0 or self._fault is not None

    async def arrivals(self) -> list[Arrival]:
        """What has come since the last call, at least one event; empty when every choice has ended.

        Raises:
            EngineFailedError: the engine broke or was closed.
            SamebitsError: the engine refused the requests.
        """
        while not self._arrivals and not self.done:
            await self._changed.wait()
            self._changed.clear()
        if not self._arrivals and self._fault is not None:
            raise self._fault
        arrived, self._arrivals = self._arrivals, []
        return arrived

    def cancel(self) -> None:
        """Ends what still waits or runs and frees its pages; no further events come. Again, or at the end: nothing."""
        if not self.done:
            self.fail(EngineFailedError("the request was cancelled"))
            self._cancel(self)

    def put(self, arrival: Arrival) -> bool:
        """Adds an event; returns whether it was the last. For the driver."""
        self._unfinished -= arrival.event.completion is not None
        self._arrivals.append(arrival)
        self._changed.set()
        return self.done

    def fail(self, fault: SamebitsError) -> None:
        """Ends the submission. For the driver."""
        if not self.done:
            self._fault = fault
            self._changed.set()


@dataclass(slots=True)
class _Origin:
    """Where a request of the engine came from, and how many of its choices have not ended."""

    submission: Submission
    index: int
    choices: int


class Driver:
    """Runs an engine in a thread of its own, for one event loop.

    Args:
        engine: nobody else may use it between ``start`` and ``close``, but for ``check`` and plain counters.
        most_choices: choices that may wait or run at once; a submission beyond that is refused.
    """

    def __init__(self, engine: Engine, most_choices: int) -> None:
        self.engine = engine
        self._most_choices = most_choices
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._open: set[Submission] = set()
        self._choices = 0
        self._stopping = False
        self._fault: EngineFailedError | None = EngineFailedError("the engine was not started")
        self._flushes: set[asyncio.Future[int]] = set()
        self._origins: dict[int, _Origin] = {}  # of the thread, by engine id

    def start(self) -> None:
        """Starts the thread; events will go to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._fault = None
        self._thread = threading.Thread(target=self._run, name="samebits-engine", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Ends the thread after its step; open submissions fail."""
        if self._fault is None:
            self._inbox.put(self._stop)
        await asyncio.to_thread(self._thread.join)
        self._break(EngineFailedError("the engine was closed"))

    # ---- on the loop -------------------------------------------------------------------------------------------------

    @property
    def fault(self) -> EngineFailedError | None:
        """Why nothing can run; None while all is well."""
        return self._fault

    @property
    def choices(self) -> int:
        """Choices of open submissions."""
        return self._choices

    def submit(self, requests: Sequence[Request]) -> Submission:
        """Queues requests together.

        Raises:
            SamebitsError: a request is wrong, or can never run (see ``Engine.add``); nothing was queued.
            OverloadedError: too many choices wait or run.
            EngineFailedError: the engine does not run.
        """
        for request in requests:
            self.engine.check(request)
        if self._fault is not None:
            raise self._fault
        submission = Submission(requests, self._drop)
        if self._choices and self._choices + submission.choices > self._most_choices:
            raise OverloadedError(
                f"{self._choices} choices wait or run, and {submission.choices} more exceed the limit of "
                f"{self._most_choices}"
            )
        self._open.add(submission)
        self._choices += submission.choices
        self._inbox.put(partial(self._add, submission))
        return submission

    async def flush(self) -> int:
        """Forgets all cached prefixes that nobody uses; returns the number of pages.

        Raises:
            EngineFailedError: the engine does not run.
        """
        if self._fault is not None:
            raise self._fault
        flushed: asyncio.Future[int] = self._loop.create_future()
        self._flushes.add(flushed)
        self._inbox.put(lambda: self._post(self._flushed, flushed, self.engine.pool.flush()))
        return await flushed

    def _flushed(self, flushed: asyncio.Future[int], pages: int) -> None:
        self._flushes.discard(flushed)
        if not flushed.done():
            flushed.set_result(pages)

    def _drop(self, submission: Submission) -> None:
        self._close(submission)
        self._inbox.put(partial(self._cancel, submission))

    def _close(self, submission: Submission) -> None:
        if submission in self._open:
            self._open.remove(submission)
            self._choices -= submission.choices

    def _deliver(self, arrivals: list[tuple[Submission, Arrival]]) -> None:
        for submission, arrival in arrivals:
            # It may have been cancelled meanwhile.
            if not submission.done and submission.put(arrival):
                self._close(submission)

    def _refuse(self, submission: Submission, fault: SamebitsError) -> None:
        submission.fail(fault)
        self._drop(submission)

    def _break(self, fault: EngineFailedError) -> None:
        self._fault = self._fault or fault
        for submission in list(self._open):
            submission.fail(fault)
            self._close(submission)
        for flushed in self._flushes:
            if not flushed.done():
                flushed.set_exception(fault)
        self._flushes.clear()

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._obey()
                self._publish(self.engine.step())
        except BaseException as fault:
            log.exception("the engine thread ends")
            self._post(self._break, EngineFailedError(f"the engine failed: {fault!r}"))

    def _obey(self) -> None:
        """Carries out what the loop asked for; waits for something when there is nothing to compute."""
        try:
            self._inbox.get(block=not self.engine.busy)()
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            return

    def _publish(self, events: list[Event]) -> None:
        arrivals = []
        for event in events:
            origin = self._origins[event.request_id]
            arrivals.append((origin.submission, Arrival(origin.index, event)))
            if event.completion is not None:
                origin.choices -= 1
                if origin.choices == 0:
                    del self._origins[event.request_id]
        if arrivals:
            self._post(self._deliver, arrivals)

    def _add(self, submission: Submission) -> None:
        try:
            for index, request in enumerate(submission.requests):
                engine_id = self.engine.add(request)
                submission.engine_ids.append(engine_id)
                self._origins[engine_id] = _Origin(submission, index, request.params.n)
        except SamebitsError as fault:
            self._post(self._refuse, submission, fault)

    def _cancel(self, submission: Submission) -> None:
        for engine_id in submission.engine_ids:
            self.engine.cancel(engine_id)
            self._origins.pop(engine_id, None)
        submission.engine_ids.clear()

    def _stop(self) -> None:
        self._stopping = True

    def _post(self, call: Callable[[*Ts], object], *arguments: *Ts) -> None:
        self._loop.call_soon_threadsafe(call, *arguments)
