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

from samebits.engine.beam import BeamSearch, Searches
from samebits.engine.engine import Engine
from samebits.engine.request import Event, Request
from samebits.errors import EngineFailedError, OverloadedError, SamebitsError

log = logging.getLogger(__name__)
Ts = TypeVarTuple("Ts")
Work = Request | BeamSearch


class Arrival(NamedTuple):
    """An event, and the index of its request within the submission."""

    request: int
    event: Event


class Submission:
    """What was submitted together. Belongs to the event loop; only ``engine_ids`` is the thread's.

    Attributes:
        work: requests, or searches, which give no event but the last of each of their choices.
        choices: answers that come.
        load: sequences that run at once to make them.
        whole: of each request only its first event and the last one of each choice come: who does not stream is not
            woken for every token.
    """

    def __init__(self, work: Sequence[Work], cancel: Callable[[Submission], None], *, whole: bool = False) -> None:
        self.work, self.whole = tuple(work), whole
        self.choices = sum(w.params.n for w in self.work)
        self.load = sum(w.params.width if isinstance(w, BeamSearch) else w.params.n for w in self.work)
        self.engine_ids: list[int] = []
        self._unfinished = self.choices
        self._arrivals: list[Arrival] = []
        self._changed = asyncio.Event()
        self._paused = False
        self._fault: SamebitsError | None = None
        self._cancel = cancel

    @property
    def done(self) -> bool:
        """Whether nothing more can come."""
        return self._unfinished == 0 or self._fault is not None

    async def arrivals(self, pause: float = 0.0) -> list[Arrival]:
        """What has come since the last call, at least one event; empty when every choice has ended.

        Args:
            pause: seconds to collect events at most before they are returned, so that many submissions wake up less
                often. It ends early with the last event.

        Raises:
            EngineFailedError: the engine broke or was closed.
            SamebitsError: the engine refused the requests.
        """
        if pause > 0 and not self.done:
            self._paused = True
            loop = asyncio.get_running_loop()
            # All who pause for as long resume at once: the loop wakes once for all streams, not once for each.
            loop.call_at((loop.time() // pause + 1) * pause, self._resume)
        while not self.done and (self._paused or not self._arrivals):
            await self._changed.wait()
            self._changed.clear()
        if not self._arrivals and self._fault is not None:
            raise self._fault
        arrived, self._arrivals = self._arrivals, []
        return arrived

    def _resume(self) -> None:
        self._paused = False
        if self._arrivals:
            self._changed.set()

    def cancel(self) -> None:
        """Ends what still waits or runs and frees its pages; no further events come. Again, or at the end: nothing."""
        if not self.done:
            self.fail(EngineFailedError("the request was cancelled"))
            self._cancel(self)

    def put(self, arrival: Arrival) -> bool:
        """Adds an event; returns whether it was the last. For the driver."""
        self._unfinished -= arrival.event.completion is not None
        self._arrivals.append(arrival)
        if self.done or not self._paused:
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
    begun: bool = False


class Driver:
    """Runs an engine in a thread of its own, for one event loop.

    Args:
        engine: nobody else may use it between ``start`` and ``close``, but for ``check`` and plain counters.
        most_choices: choices that may wait or run at once. A submission beyond that is refused, unless nothing else is
            open: it could never be taken otherwise.
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
        self._searches = Searches(engine)  # of the thread, as what follows
        self._searched: dict[BeamSearch, tuple[Submission, int]] = {}

    def start(self) -> None:
        """Starts the thread; events will go to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._fault = None
        self._thread = threading.Thread(target=self._run, name="samebits-engine", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Ends the thread after its step; open submissions fail."""
        await asyncio.to_thread(self.stop)
        self.abandon("the engine was closed")

    def abandon(self, reason: str) -> None:
        """Fails all open submissions, and every later one."""
        self._break(EngineFailedError(reason))

    def stop(self) -> None:
        """Ends the thread after its step, from any thread and also when the loop has ended; again: nothing.

        A thread that is left running inside a kernel would bring down the interpreter at its exit.
        """
        self._inbox.put(self._end)
        self._thread.join()

    # ---- on the loop -------------------------------------------------------------------------------------------------

    @property
    def fault(self) -> EngineFailedError | None:
        """Why nothing can run; None while all is well."""
        return self._fault

    @property
    def choices(self) -> int:
        """Choices of open submissions; a search counts its beams."""
        return self._choices

    def submit(self, work: Sequence[Work], *, whole: bool = False) -> Submission:
        """Queues requests or searches together.

        Args:
            whole: see ``Submission``.

        Raises:
            SamebitsError: a request is wrong, or can never run (see ``Engine.add``); nothing was queued.
            OverloadedError: too many choices wait or run.
            EngineFailedError: the engine does not run.
        """
        for one in work:
            if isinstance(one, Request):  # a search was checked when it was made
                self.engine.check(one)
        if self._fault is not None:
            raise self._fault
        submission = Submission(work, self._drop, whole=whole)
        if self._choices and self._choices + submission.load > self._most_choices:
            raise OverloadedError(
                f"{self._choices} choices wait or run, and {submission.load} more exceed the limit of "
                f"{self._most_choices}"
            )
        self._open.add(submission)
        self._choices += submission.load
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
            self._choices -= submission.load

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
            if self._searches.owns(event):
                arrivals += self._sought(event)
                continue
            origin = self._origins[event.request_id]
            if event.completion is not None or not (origin.begun and origin.submission.whole):
                arrivals.append((origin.submission, Arrival(origin.index, event)))
            origin.begun = True
            if event.completion is not None:
                origin.choices -= 1
                if origin.choices == 0:
                    del self._origins[event.request_id]
        if arrivals:
            self._post(self._deliver, arrivals)

    def _sought(self, event: Event) -> list[tuple[Submission, Arrival]]:
        """What the event of a beam brings: the answers of its search, if that is done."""
        search = self._searches.take(event)
        if search is None:
            return []
        submission, index = self._searched.pop(search)
        answers = search.completions()
        ends = [Event(event.request_id, a.index, None, a.text, a) for a in answers]
        return [(submission, Arrival(index, end)) for end in ends]

    def _add(self, submission: Submission) -> None:
        try:
            for index, one in enumerate(submission.work):
                if isinstance(one, BeamSearch):
                    self._searches.start(one)
                    self._searched[one] = submission, index
                    continue
                engine_id = self.engine.add(one)
                submission.engine_ids.append(engine_id)
                self._origins[engine_id] = _Origin(submission, index, one.params.n)
        except SamebitsError as fault:
            self._post(self._refuse, submission, fault)

    def _cancel(self, submission: Submission) -> None:
        for engine_id in submission.engine_ids:
            self.engine.cancel(engine_id)
            self._origins.pop(engine_id, None)
        submission.engine_ids.clear()
        for one in submission.work:
            if isinstance(one, BeamSearch):
                self._searches.cancel(one)
                self._searched.pop(one, None)

    def _end(self) -> None:
        self._stopping = True

    def _post(self, call: Callable[[*Ts], object], *arguments: *Ts) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise  # else there is nobody left to tell
