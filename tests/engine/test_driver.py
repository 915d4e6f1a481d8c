"""The engine behind a thread: events, cancellation, a full queue, and what happens when the engine breaks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakes import EOS, FakeDecoder, alone, answer, make_engine, some_requests

from samebits.engine import Completion, Request, SamplingParams
from samebits.engine.driver import Driver, Submission
from samebits.errors import ContextLengthError, EngineFailedError, InputError, OverloadedError
from waiting import PATIENCE_S

LONG = Request((1, 2, 3), SamplingParams(max_tokens=100, ignore_eos=True, logit_bias={EOS: -100}))
SHORT = Request((1, 2, 3), SamplingParams(max_tokens=2, ignore_eos=True))


class GatedDecoder(FakeDecoder):
    """Computes only while the gate is open; breaks when it is told to.

    Attributes:
        closes_after: steps after which the gate closes by itself; never if negative.
        stands: whether a step waits for the gate.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.closes_after = -1
        self.stands = False
        self.fault: BaseException | None = None

    def forward(self, batch: Any, cache: Any) -> Any:
        self.stands = not self.gate.is_set()
        assert self.gate.wait(PATIENCE_S)
        self.stands = False
        if self.fault is not None:
            raise self.fault
        self.closes_after -= 1
        if self.closes_after == 0:
            self.gate.clear()
        return super().forward(batch, cache)


@asynccontextmanager
async def driving(most_choices: int = 100, **options: Any) -> AsyncIterator[tuple[Driver, GatedDecoder]]:
    decoder = GatedDecoder()
    driver = Driver(make_engine(decoder=decoder, **options), most_choices)
    driver.start()
    try:
        yield driver, decoder
    finally:
        decoder.gate.set()
        await driver.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await test()

    asyncio.run(limited())


async def completions(submission: Submission) -> dict[tuple[int, int], Completion]:
    """All choices by request and index; checks that the pieces of text add up."""
    done, texts = {}, {}
    while arrived := await submission.arrivals():
        for request, event in arrived:
            key = request, event.index
            texts[key] = texts.get(key, "") + event.text
            if event.completion is not None:
                done[key] = event.completion
                assert texts[key] == event.completion.text
    return done


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_answers_are_those_of_the_engine_alone() -> None:
    async def test() -> None:
        async with driving(pages=64, chunk=16) as (driver, _):
            requests = some_requests(24)
            submissions = [driver.submit(requests[i : i + 3]) for i in range(0, 24, 3)]
            for i, submission in enumerate(submissions):
                done = await completions(submission)
                for j in range(3):
                    assert [answer(done[j, 0])] == alone(requests[3 * i + j])
            assert driver.choices == 0
            assert driver.engine.pool.held == 0

    run(test)


def test_several_choices_end_one_submission() -> None:
    async def test() -> None:
        async with driving(prefix_cache=True) as (driver, _):
            request = Request((5, 6, 7, 8, 9), SamplingParams(max_tokens=5, temperature=1, seed=1, n=4))
            done = await completions(driver.submit([request, request]))
            assert sorted(done) == [(r, i) for r in range(2) for i in range(4)]
            assert [done[0, i].token_ids for i in range(4)] == [done[1, i].token_ids for i in range(4)]

    run(test)


def test_cancelling_frees_the_pages_and_leaves_others_alone() -> None:
    async def test() -> None:
        async with driving() as (driver, decoder):
            decoder.gate.clear()
            victim, other = driver.submit([LONG, LONG]), driver.submit([SHORT])
            decoder.closes_after = 3
            decoder.gate.set()
            await victim.arrivals()
            victim.cancel()
            victim.cancel()
            assert driver.choices <= 1
            decoder.gate.set()
            with pytest.raises(EngineFailedError):
                await completions(victim)
            assert [answer((await completions(other))[0, 0])] == alone(SHORT)
            await until(lambda: driver.engine.unfinished == 0)
            assert driver.engine.pool.held == 0

    run(test)


def test_cancelling_before_the_engine_has_seen_it() -> None:
    async def test() -> None:
        async with driving() as (driver, decoder):
            decoder.gate.clear()
            driver.submit([SHORT])
            victim = driver.submit([LONG])
            victim.cancel()
            decoder.gate.set()
            await until(lambda: driver.choices == 0)
            await until(lambda: driver.engine.unfinished == 0)

    run(test)


def test_a_full_queue_refuses_and_takes_again_later() -> None:
    async def test() -> None:
        async with driving(most_choices=3) as (driver, decoder):
            decoder.gate.clear()
            first = driver.submit([SHORT, SHORT])
            with pytest.raises(OverloadedError):
                driver.submit([SHORT, SHORT])
            second = driver.submit([SHORT])
            decoder.gate.set()
            await completions(first)
            await completions(second)
            # One that is larger than the limit is taken when nothing else runs: it could never be taken otherwise.
            assert len(await completions(driver.submit([SHORT] * 5))) == 5

    run(test)


def test_what_the_engine_cannot_do_is_refused_at_once() -> None:
    async def test() -> None:
        async with driving() as (driver, _):
            for request, error in (
                (Request((), SamplingParams()), InputError),
                (Request((1,) * 500, SamplingParams()), ContextLengthError),
                (Request((9999,), SamplingParams()), InputError),
            ):
                with pytest.raises(error):
                    driver.submit([SHORT, request])
            assert driver.choices == 0
            assert driver.engine.unfinished == 0

    run(test)


@pytest.mark.parametrize("fault", [RuntimeError("broken"), MemoryError(), SystemExit(3)])
def test_a_broken_engine_ends_every_request_and_takes_no_more(fault: BaseException) -> None:
    async def test() -> None:
        async with driving() as (driver, decoder):
            decoder.gate.clear()
            waiting = [driver.submit([LONG]) for _ in range(3)]
            listening = [asyncio.create_task(completions(s)) for s in waiting]
            decoder.fault = fault
            decoder.gate.set()
            for result in await asyncio.gather(*listening, return_exceptions=True):
                assert isinstance(result, EngineFailedError)
                assert repr(fault) in str(result)
            assert driver.fault is not None
            with pytest.raises(EngineFailedError):
                driver.submit([SHORT])
            with pytest.raises(EngineFailedError):
                await driver.flush()

    run(test)


def test_closing_ends_what_runs() -> None:
    async def test() -> None:
        async with driving() as (driver, decoder):
            decoder.closes_after = 3
            submission = driver.submit([LONG])
            await until(lambda: decoder.stands)
            closing = asyncio.create_task(driver.close())
            await until(lambda: not driver._inbox.empty())
            decoder.gate.set()
            with pytest.raises(EngineFailedError):
                await completions(submission)
            await closing

    run(test)


def test_flushing_forgets_prefixes_and_nothing_else() -> None:
    async def test() -> None:
        async with driving(prefix_cache=True, page_size=4) as (driver, _):
            request = Request(tuple(range(1, 14)), SamplingParams(max_tokens=2))
            first = (await completions(driver.submit([request])))[0, 0]
            again = (await completions(driver.submit([request])))[0, 0]
            assert again.cached_prompt_tokens == 12
            assert await driver.flush() >= 3
            driver.engine.pool.check()
            cold = (await completions(driver.submit([request])))[0, 0]
            assert cold.cached_prompt_tokens == 0
            assert answer(first) == answer(again) == answer(cold)

    run(test)


def test_a_pause_collects_events_and_ends_with_the_last() -> None:
    async def test() -> None:
        async with driving() as (driver, decoder):
            decoder.closes_after = 1
            submission = driver.submit([LONG])
            first = await submission.arrivals()
            assert len(first) == 1
            asyncio.get_running_loop().call_soon(decoder.gate.set)
            rest = await submission.arrivals(pause=1e9)  # far longer than the test may take
            events = [*first, *rest]
            assert len(events) == 100
            assert events[-1].event.completion is not None
            assert not await submission.arrivals(pause=1e9)

    run(test)


def test_who_waits_for_the_whole_answer_is_not_woken_for_every_token() -> None:
    async def test() -> None:
        async with driving() as (driver, _):
            request = Request((1, 2, 3), SamplingParams(max_tokens=20, ignore_eos=True, n=2, temperature=1.0, seed=1))
            pieces = await all_events(driver.submit([request, SHORT]))
            ends = await all_events(driver.submit([request, SHORT], whole=True))
            assert len(pieces) == 42
            assert [(r, e.index, e.completion is None) for r, e in ends] == [
                (0, 0, True), (1, 0, True), (1, 0, False), (0, 0, False), (0, 1, False),
            ]  # fmt: skip
            first, second = (
                {(r, e.index): answer(e.completion) for r, e in events if e.completion} for events in (pieces, ends)
            )
            assert first == second

    async def all_events(submission: Submission) -> list[Any]:
        events: list[Any] = []
        while arrived := await submission.arrivals():
            events += arrived
        return events

    run(test)
