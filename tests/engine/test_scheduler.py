"""What the scheduler may never do, whatever runs, waits and is left; and small plans written out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from samebits.engine.scheduler import Limits, Plan, View, plan_step

Planner = Callable[[list[View], list[View], int, Limits], Plan]


@dataclass(frozen=True)
class Case:
    """A state that an engine can be in: no more sequences run than fit a step, and all but the youngest decode."""

    running: list[View]
    waiting: list[View]
    available: int
    limits: Limits


@st.composite
def cases(draw: st.DrawFn) -> Case:
    limits = Limits(draw(st.integers(1, 6)), draw(st.integers(1, 24)), draw(st.sampled_from((1, 2, 4, 16))))
    size, next_page = limits.page_size, 0
    shared: list[int] = []
    running = []
    count = draw(st.integers(0, min(limits.max_batch, limits.chunk)))
    for key in range(count):
        left = 1 if key < count - 1 else draw(st.integers(1, 40))
        computed = draw(st.integers(0, 40))
        if computed == 0 and left > 1:
            computed = 1
        held = limits.pages_for(computed)
        common = shared[: min(draw(st.integers(0, len(shared))), computed // size)]
        pages = [*common, *range(next_page, next_page + held - len(common))]
        next_page += held - len(common)
        if draw(st.booleans()):
            shared = pages[: computed // size]
        running.append(View(key, computed, computed + left, pages))
    waiting = []
    for key in range(100, 100 + draw(st.integers(0, 5))):
        total = draw(st.integers(1, 40))
        waiting.append(View(key, (draw(st.integers(0, total - 1)) // size) * size, total))
    # The pool holds at least the longest sequence (Engine.add refuses others).
    longest = max((limits.pages_for(v.total) for v in (*running, *waiting)), default=1)
    least = max(0, longest - next_page)
    return Case(running, waiting, draw(st.integers(least, least + 12)), limits)


def check(case: Case, plan: Plan) -> None:
    running = {v.key: v for v in case.running}
    waiting = {v.key: v for v in case.waiting}
    rows, limits = dict(plan.rows), case.limits
    assert len(rows) == len(plan.rows), "a sequence has two rows"
    assert set(plan.preempted) <= set(running)
    assert set(plan.admitted) <= set(waiting)
    assert len(set(plan.preempted)) == len(plan.preempted)
    assert not set(rows) & set(plan.preempted), "a preempted sequence computes"
    assert set(rows) <= set(running) | set(plan.admitted), "a waiting sequence computes"
    assert set(plan.admitted) <= set(rows), "admitted for nothing"
    assert sum(rows.values()) <= limits.chunk, "more rows than a step may have"
    for key, count in rows.items():
        view = running.get(key) or waiting[key]
        assert 1 <= count <= view.total - view.computed
    left = [v for v in case.running if v.key not in plan.preempted]
    assert len(left) + len(plan.admitted) <= limits.max_batch, "more sequences than may run"
    # Pages: those free, those that preemption frees (no holder left), against those wanted.
    holders = Counter(page for v in case.running for page in v.pages)
    holders.subtract(page for v in case.running if v.key in plan.preempted for page in v.pages)
    freed = sum(1 for n in holders.values() if n == 0)
    wanted = 0
    for key, count in rows.items():
        view = running.get(key) or waiting[key]
        wanted += limits.pages_for(view.computed + count) - len(view.pages)
    assert wanted <= case.available + freed, "more pages than there are"
    # Fairness: the youngest is preempted first, the oldest always advances, admission is in order.
    victims = [v.key for v in case.running[len(left) :]]
    assert list(plan.preempted) == victims[::-1], "not the youngest was preempted"
    if case.running:
        assert case.running[0].key in rows, "the oldest does not advance"
    elif case.waiting:
        assert case.waiting[0].key in rows, "nothing runs, and the first does not start"
    assert list(plan.admitted) == [v.key for v in case.waiting[: len(plan.admitted)]], "not first come, first served"
    if plan.preempted:
        assert not plan.admitted, "admitted while pages ran out"
    if len(left) == len(case.running):  # without pressure, all that decode advance
        assert all(v.key in rows for v in case.running if v.total - v.computed == 1)


@settings(max_examples=1500)
@given(cases())
def test_no_plan_breaks_a_rule(case: Case) -> None:
    check(case, plan_step(case.running, case.waiting, case.available, case.limits))


@settings(max_examples=300)
@given(cases())
def test_a_plan_is_a_function_of_its_arguments(case: Case) -> None:
    plans = {plan_step(case.running, case.waiting, case.available, case.limits) for _ in range(2)}
    assert len(plans) == 1


def too_many_rows(running: list[View], waiting: list[View], available: int, limits: Limits) -> Plan:
    return plan_step(running, waiting, available, Limits(limits.max_batch, limits.chunk + 1, limits.page_size))


def too_many_pages(running: list[View], waiting: list[View], available: int, limits: Limits) -> Plan:
    return plan_step(running, waiting, available + 1, limits)


def too_many_sequences(running: list[View], waiting: list[View], available: int, limits: Limits) -> Plan:
    return plan_step(running, waiting, available, Limits(limits.max_batch + 1, limits.chunk, limits.page_size))


def last_come_first(running: list[View], waiting: list[View], available: int, limits: Limits) -> Plan:
    return plan_step(running, waiting[::-1], available, limits)


def preempts_the_oldest(running: list[View], waiting: list[View], available: int, limits: Limits) -> Plan:
    return plan_step(running[::-1], waiting, available, limits)


def keeps_rows_of_the_preempted(running: list[View], waiting: list[View], available: int, limits: Limits) -> Plan:
    plan = plan_step(running, waiting, available, limits)
    return Plan((*plan.rows, *((key, 1) for key in plan.preempted)), plan.admitted, plan.preempted)


@pytest.mark.parametrize(
    "planner",
    [
        too_many_rows,
        too_many_pages,
        too_many_sequences,
        last_come_first,
        preempts_the_oldest,
        keeps_rows_of_the_preempted,
    ],
)
def test_control_a_faulty_plan_is_seen(planner: Planner) -> None:
    @settings(
        max_examples=1500,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    @given(cases())
    def run(case: Case) -> None:
        check(case, planner(case.running, case.waiting, case.available, case.limits))

    with pytest.raises(AssertionError):
        run()


def test_decoding_goes_first_and_prompts_take_what_is_left() -> None:
    running = [View(1, 5, 6, (0, 1)), View(2, 9, 10, (2, 3, 4)), View(3, 4, 20, (5,))]
    plan = plan_step(running, [View(4, 0, 9)], 100, Limits(8, 12, 4))
    assert plan == Plan(((1, 1), (2, 1), (3, 10)), (), ())
    plan = plan_step(running, [View(4, 0, 9), View(5, 0, 3)], 100, Limits(8, 20, 4))
    assert plan == Plan(((1, 1), (2, 1), (3, 16), (4, 2)), (4,), ())


def test_the_youngest_is_preempted_and_its_row_taken_back() -> None:
    running = [View(1, 4, 5, (0,)), View(2, 4, 5, (1,)), View(3, 4, 5, (2,))]
    assert plan_step(running, [View(9, 0, 1)], 1, Limits(8, 12, 4)) == Plan(((1, 1), (2, 1)), (), (3,))
    # The oldest, a prompt, comes after those that decode, and takes from the youngest what it was given.
    running = [View(1, 4, 16, (0,)), View(2, 4, 5, (1,)), View(3, 4, 5, (2,))]
    assert plan_step(running, [], 2, Limits(8, 14, 4)) == Plan(((1, 12),), (), (3, 2))


def test_shared_pages_come_back_with_their_last_holder() -> None:
    running = [View(1, 8, 9, (0, 1)), View(2, 8, 9, (0, 2)), View(3, 4, 5, (0,))]
    assert plan_step(running, [], 0, Limits(8, 12, 4)) == Plan(((1, 1),), (), (3, 2))


def test_a_long_first_in_line_is_not_overtaken() -> None:
    waiting = [View(1, 0, 40), View(2, 0, 1)]
    assert plan_step([View(0, 3, 4, (0,))], waiting, 5, Limits(8, 64, 4)) == Plan(((0, 1),), (), ())


def test_nothing_to_do() -> None:
    assert plan_step([], [], 5, Limits(8, 64, 4)) == Plan((), (), ())
