"""The load is a plan: what a mode answers, and when it ends, changes nothing that arrives."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from samebits.audit.load import MOST_ASKED, MOST_OTHERS, Arrivals, others_wanted, plan_load
from samebits.audit.repeat import drive
from samebits.engine import Completion, Event, Request, SamplingParams
from samebits.errors import SamebitsError

ASKED = Request((1, 2, 3), SamplingParams(max_tokens=20))
LENGTHS: dict[str, Callable[[int], int]] = {
    "all tokens": lambda i: 20,
    "one token": lambda i: 1,
    "mixed": lambda i: 1 + i * 7 % 20,
}


class StubEngine:
    """Gives each request one token a step; the measured prompt's answers have the lengths of a mode."""

    def __init__(self, length: Callable[[int], int]) -> None:
        self.length, self.step_index, self.asked = length, 0, 0
        self.left: dict[int, int] = {}
        self.log: list[tuple[int, Request]] = []
        self.stats = SimpleNamespace(batch_sizes=Counter())

    def add(self, request: Request) -> int:
        self.log.append((self.step_index, request))
        tokens = request.params.max_tokens or 0
        if request is ASKED:
            tokens = self.length(self.asked)
            self.asked += 1
        self.left[len(self.log)] = tokens
        return len(self.log)

    def step(self) -> list[Event]:
        self.step_index += 1
        if self.left:
            self.stats.batch_sizes[len(self.left)] += 1
        events = []
        for request_id in list(self.left):
            self.left[request_id] -= 1
            ended = self.left[request_id] == 0
            events.append(Event(request_id, 0, 5, "x", self.completion() if ended else None))
            if ended:
                del self.left[request_id]
        return events

    def completion(self) -> Completion:
        return Completion(0, "x", (5,), None, None, "length", None, None, 0, ASKED.params, {})


def log_of(plan: list[Arrivals], length: Callable[[int], int]) -> list[tuple[int, Request]]:
    engine: Any = StubEngine(length)
    seen = drive(engine, ASKED, plan, lambda: None)
    assert len(seen.completions) == 30
    return list(engine.log)


def test_what_arrives_does_not_depend_on_the_answers() -> None:
    plan = plan_load(30, 20, 1000)
    planned = [(i, r) for i, a in enumerate(plan) for r in (*a.others, *[ASKED] * a.asked)]
    assert Counter(r is ASKED for _, r in planned)[True] == 30
    for name, length in LENGTHS.items():
        log = log_of(plan, length)
        assert log == planned[: len(log)], name
        # No run is started before its step, and what comes after the last run's end was not needed.
        assert sum(r is ASKED for _, r in log) == 30, name


def test_control_arrivals_that_wait_for_answers_differ() -> None:
    """As a loop does that starts the next run when the last has ended."""

    def closed_loop(length: Callable[[int], int]) -> list[tuple[int, Request]]:
        engine = StubEngine(length)
        rng = random.Random(1)
        while engine.asked < 30:
            if not any(r is ASKED for r in (engine.log[i - 1][1] for i in engine.left)) or rng.random() < 0.25:
                engine.add(ASKED)
            engine.step()
        return engine.log

    assert closed_loop(LENGTHS["one token"]) != closed_loop(LENGTHS["all tokens"])


def test_the_number_of_others_is_the_wanted_one_in_every_step() -> None:
    wanted = list(itertools.islice(others_wanted(random.Random(3)), 5000))
    phases = [len(list(group)) for _, group in itertools.groupby(wanted)]
    assert min(phases[:-1]) >= 4
    assert set(wanted) == {0, 1, 2, 4, 8, MOST_OTHERS}
    ends: list[int] = []
    reached = 0
    for now, arrivals in enumerate(plan_load(100, 48, 1000)):
        ends = [end for end in ends if end > now]
        if arrivals.others:
            ends += [now + (r.params.max_tokens or 0) for r in arrivals.others]
            assert len(ends) in (1, 2, 4, 8, MOST_OTHERS), "it is filled up to a wanted number"
            reached += 1
        assert len(ends) <= MOST_OTHERS
    assert reached > 50


def test_runs_overlap_and_more_of_them_keep_the_beginning() -> None:
    short, long = plan_load(30, 20, 1000), plan_load(60, 20, 1000)
    last = max(i for i, arrivals in enumerate(short) if arrivals.asked)
    assert short[:last] == long[:last]
    alive = [sum(a.asked for a in long[max(0, i - 19) : i + 1]) for i in range(len(long))]
    assert 2 < max(alive) <= MOST_ASKED


def test_a_failed_request_ends_the_measurement() -> None:
    engine: Any = StubEngine(LENGTHS["one token"])
    failed = Completion(0, "", (), None, None, "error", None, None, 0, ASKED.params, {}, SamebitsError("broken"))
    engine.completion = lambda: failed
    with pytest.raises(SamebitsError, match="broken"):
        drive(engine, ASKED, plan_load(3, 5, 100), lambda: None)
