"""Carries out a plan against one target, block after block; notes each request before it leaves and its answer."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from samebits.audit.journal import Journal
from samebits.audit.observation import Evidence, Observation, Timing
from samebits.audit.plan import Block, Plan, Step
from samebits.audit.prompts import Judgement, judge
from samebits.audit.targets import Ask, Reply, Target
from samebits.counted import counted, part
from samebits.errors import MeasurementError, SamebitsError

LOST: Final = "lost: the audit was interrupted before the answer came"
# So many failures one after the other, and no answer between them, end an audit: the target is gone.
FAILURES: Final = 20
MOST_BACKGROUND: Final = 32
NOT_JUDGED: Final = Judgement(None, None)


@dataclass(eq=False)
class Stay:
    """A request's time at the target, and the company it had there. Entered once for each attempt."""

    traffic: Traffic
    background: bool
    in_flight: int = 0
    others: int = 0

    def __enter__(self) -> None:
        self.traffic.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.traffic.leave(self)


@dataclass
class Traffic:
    """Who is at the target now. Tells each request the most others that were there while it was.

    Attributes:
        measured: requests of the plan.
        background: other ones.
        refused: whether the background request that ended last failed. Until another one is answered they count for
            no company: what a target turns away is no load.
    """

    measured: set[Stay] = field(default_factory=set)
    background: int = 0
    refused: bool = False

    def enter(self, stay: Stay) -> None:
        """A request leaves for the target."""
        if stay.background:
            self.background += 1
        else:
            self.measured.add(stay)
        for each in self.measured:
            each.in_flight = max(each.in_flight, len(self.measured))
            each.others = max(each.others, 0 if self.refused else self.background)

    def leave(self, stay: Stay) -> None:
        """It is answered."""
        if stay.background:
            self.background -= 1
        else:
            self.measured.discard(stay)


@dataclass
class Progress:
    """What has happened so far, for whoever shows it.

    Attributes:
        failed: requests of the plan without an answer, in this process.
        retries: requests that were sent again.
        details: failure → the target's own words, of its first occurrence.
    """

    failed: int = 0
    retries: int = 0
    details: dict[str, str] = field(default_factory=dict)


class Runner:
    """Runs a plan against a target.

    Args:
        plan: what to do.
        name: of the target, in the results.
        target: open.
        journal: with what an earlier process left.
        resend: ask again what was sent and has no outcome; otherwise it counts as lost, since it may have been paid.
        advance: called with the number of requests that have got an outcome.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        target: Target,
        journal: Journal,
        *,
        resend: bool = False,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._plan, self._name, self._target, self._journal = plan, name, target, journal
        self._resend, self._advance = resend, advance
        self._traffic = Traffic()
        self._background: set[asyncio.Task[None]] = set()
        self._released = self._turned_away = 0
        self._forgotten = self._kept = 0  # attempts to empty the prefix cache, and those that failed
        self._stray_error: BaseException | None = None
        self._room = asyncio.Semaphore(MOST_BACKGROUND)
        self._failures_in_a_row = 0
        self.progress = Progress()

    async def run(self) -> None:
        """Does everything that has no outcome yet.

        Raises:
            MeasurementError: the target does not answer any more, or the journal cannot be written.
        """
        try:
            for block in self._plan.blocks():
                await self._run_block(block)
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            await self._journal.settle()

    async def _run_block(self, block: Block) -> None:
        steps = self._todo(block)
        first = next(steps, None)
        if first is None:
            return
        if block.warm:
            for index in block.order:
                ask = self._plan.warming(self._plan.prompts[index])
                await self._target.ask(ask, Stay(self._traffic, background=True))
        queue = itertools.chain((first,), steps)
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(block.concurrency):
                    workers.create_task(self._work(block, queue))
        except* SamebitsError as errors:
            raise errors.exceptions[0] from None
        # The next block begins when the target is idle.
        await asyncio.gather(*self._background)
        self._check_strays()

    def _todo(self, block: Block) -> Iterator[Step]:
        """The steps without an outcome. Those that were sent and are not to be sent again get theirs here."""
        past = self._journal.past
        sent = past.sent.get(self._name, set())
        for step in block.steps():
            prompt = self._plan.prompts[step.prompt]
            if (self._name, prompt.id, step.run, block.condition) in past.done:
                self._advance(1)
            elif step.index in sent and not self._resend:
                self._note(self._observation(block, step, Reply(error=LOST), Evidence(), None))
            else:
                yield step

    async def _work(self, block: Block, queue: Iterator[Step]) -> None:
        """One of the block's concurrent askers."""
        for step in queue:
            self._check_strays()
            ask = self._plan.ask(block, step)
            for number in range(step.background):
                self._release(self._plan.background(step, number))
            if block.cold:
                await self._forget_prefixes()
            stay = Stay(self._traffic, background=False)
            self._journal.sent(self._name, step.index)
            started = time.time()
            reply = await self._target.ask(ask, stay)
            timing = Timing(started=started, total_s=float(reply.total_s), first_token_s=reply.first_token_s)
            self._note(self._observation(block, step, reply, _evidence(reply, stay), timing))
            self._watch(reply)

    async def _forget_prefixes(self) -> None:
        emptied = await self._target.forget_prefixes()
        if emptied is None:
            self._target.notes["prefix"] = "the target offers no way to empty its prefix cache: no run was made cold"
            return
        self._forgotten += 1
        self._kept += not emptied
        if self._kept:
            self._target.notes["prefix"] = (
                f"{part(self._kept, self._forgotten, 'time')}, the target could not empty its prefix cache; what a run "
                "found there is its number of cached tokens"
            )

    def _release(self, ask: Ask) -> None:
        async def stray() -> None:
            async with self._room:
                reply = await self._target.ask(ask, Stay(self._traffic, background=True))
            self._released += 1
            self._traffic.refused = reply.error is not None
            if reply.error is not None:
                self._turned_away += 1
                self._target.notes["load"] = (
                    f"{part(self._turned_away, self._released, 'background request')} failed, the last one with: "
                    f"{reply.error}; the load was as much lighter"
                )

        task = asyncio.create_task(stray())
        self._background.add(task)
        task.add_done_callback(self._on_stray)

    def _on_stray(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._stray_error = task.exception()

    def _check_strays(self) -> None:
        """Raises what ended a background request: it holds for the measured ones, too."""
        if self._stray_error is not None:
            raise self._stray_error

    def _watch(self, reply: Reply) -> None:
        """Ends the audit when the target is gone."""
        self.progress.retries += reply.attempts - 1
        if reply.error is None:
            self._failures_in_a_row = 0
            return
        self.progress.details.setdefault(reply.error, reply.detail or "")
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= FAILURES:
            raise MeasurementError(
                f"{counted(self._failures_in_a_row, 'request')} in a row failed, the last one with: {reply.error} "
                f"{self.progress.details[reply.error]}".rstrip()
            )

    def _note(self, observation: Observation) -> None:
        self._journal.add(observation)
        self.progress.failed += observation.failed
        self._advance(1)

    def _observation(
        self, block: Block, step: Step, reply: Reply, evidence: Evidence, timing: Timing | None
    ) -> Observation:
        prompt = self._plan.prompts[step.prompt]
        judged = NOT_JUDGED if reply.text is None or reply.error is not None else judge(prompt, reply.text)
        return Observation(
            target=self._name,
            prompt_id=prompt.id,
            run=step.run,
            condition=block.condition,
            text=None if reply.error is not None else reply.text or "",
            token_ids=reply.token_ids,
            tokens=reply.tokens,
            logprobs=reply.logprobs,
            top_logprobs=reply.top_logprobs,
            finish_reason=reply.finish_reason,
            answer=judged.answer,
            correct=judged.correct,
            parsed=judged.parsed,
            body=reply.body,
            fingerprint=reply.fingerprint,
            error=reply.error,
            attempts=reply.attempts,
            evidence=evidence,
            timing=timing,
        )


def _evidence(reply: Reply, stay: Stay) -> Evidence:
    return Evidence(
        in_flight=stay.in_flight,
        background=stay.others,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        completion_tokens=reply.completion_tokens,
        prefill_chunks=reply.prefill_chunks,
        stream_events=reply.stream_events,
        seed_sent=reply.seed_sent,
        seed_echoed=reply.seed_echoed,
    )
