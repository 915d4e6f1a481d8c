"""When a waiting prompt may start: not before all of it finds room, and not later than that.

Each test counts what was computed or what ran together, and has a control: the planner without the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fakes import FakeDecoder, Run, alone, make_engine

from samebits.engine import Request, SamplingParams, engine
from samebits.engine.scheduler import Limits, Plan, View, plan_step

LONG = tuple(i % 50 for i in range(76))


def check_computed_once(prefix_cache: bool) -> None:
    """A long prompt that does not fit beside what runs waits; it is not computed, preempted and computed again."""
    made = make_engine(pages=20, page_size=4, chunk=8, prefix_cache=prefix_cache)
    run = Run(made)
    first = Request((1, 2, 3, 4, 5, 6, 7), SamplingParams(max_tokens=60, ignore_eos=True))
    second = Request(LONG, SamplingParams(max_tokens=3, ignore_eos=True))
    ids = [made.add(first)]
    run.step()
    ids.append(made.add(second))
    run.to_end()
    assert [[run.answers[i, 0]] for i in ids] == [alone(first), alone(second)]
    once = sum(len(r.prompt_token_ids) + (r.params.max_tokens or 0) - 1 for r in (first, second))
    assert made.stats.rows == once, "tokens were computed twice"


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_prompt_that_does_not_fit_is_computed_once(prefix_cache: bool) -> None:
    check_computed_once(prefix_cache)


def by_first_chunk(running: Any, waiting: Any, available: int, limits: Limits) -> Plan:
    """Admits what has room for its first chunk."""
    short = (replace(v, total=min(v.total, v.computed + limits.chunk)) for v in waiting)
    return plan_step(running, short, available, limits)


def test_control_admission_for_the_first_chunk_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "plan_step", by_first_chunk)
    with pytest.raises(AssertionError, match="computed twice"):
        check_computed_once(False)


def check_choices_together() -> None:
    """Choices that share a prompt run together where their own pages fit, though four prompts would not."""
    decoder = FakeDecoder()
    made = make_engine(decoder=decoder, pages=30, page_size=4, prefix_cache=True)
    run = Run(made)
    params = SamplingParams(max_tokens=6, n=4, ignore_eos=True, temperature=1.0, seed=1)
    request = Request((*LONG, 1), params)
    made.add(request)
    run.to_end()
    assert [run.answers[0, i] for i in range(4)] == alone(request)
    assert max(decoder.batch_sizes) == 4, "choices waited though their prompt was there"


def test_choices_share_the_pages_of_their_prompt() -> None:
    check_choices_together()


def test_control_shared_pages_that_are_charged_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def charged(running: Any, waiting: Any, available: int, limits: Limits) -> Plan:
        return plan_step(running, (replace(v, shared=0) for v in waiting), available, limits)

    monkeypatch.setattr(engine, "plan_step", charged)
    with pytest.raises(AssertionError, match="choices waited"):
        check_choices_together()


@pytest.mark.parametrize(("max_batch", "chunk", "read"), [(8, 100, 3), (2, 100, 2), (1, 100, 1), (8, 10, 2), (8, 4, 1)])
def test_the_queue_is_read_no_further_than_the_first_that_waits(max_batch: int, chunk: int, read: int) -> None:
    """However long the queue, planning a step costs what it admits."""
    seen: list[int] = []

    def queue() -> Iterator[View]:
        for key, total in enumerate((5, 7, 400, *[1] * 1000)):
            seen.append(key)
            yield View(key, 0, total)

    plan = plan_step([], queue(), 50, Limits(max_batch, chunk, 4))
    assert len(seen) == read
    assert plan.admitted == tuple(seen[:2])
