"""The experiment: complete, balanced, and the same each time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from samebits.audit.plan import Experiment, Plan
from samebits.audit.prompts import Prompt
from samebits.audit.targets import Prices
from samebits.errors import InputError


def prompts(count: int = 5) -> tuple[Prompt, ...]:
    return tuple(Prompt(id=f"p{i}", messages=({"role": "user", "content": f"Say {i}"},)) for i in range(count))


def plan(count: int = 5, **values: Any) -> Plan:
    return Plan(Experiment(**values), prompts(count))


FULL: dict[str, Any] = {
    "runs": 8,
    "concurrency": (1, 4),
    "load": ("off", "on"),
    "prefix": ("cold", "warm"),
    "streaming": ("off", "on"),
    "seeds": ("fixed", "none"),
    "temperature": 0.7,
}


def test_every_combination_has_every_prompt_equally_often() -> None:
    full = plan(**FULL)
    seen: Counter[tuple[object, ...]] = Counter()
    for block in full.blocks():
        for step in block.steps():
            seen[(step.prompt, block.condition)] += 1
    assert len(seen) == 5 * 2**5 * 2 * 2  # prompts × levels × times × orders
    assert set(seen.values()) == {2}
    assert full.counts.measured == 5 * 8 * 2**5 == 5 * full.experiment.runs_in_all


def test_steps_are_numbered_through_and_runs_tell_equals_apart() -> None:
    full = plan(**FULL)
    steps = [(step, block) for block in full.blocks() for step in block.steps()]
    assert [step.index for step, _ in steps] == list(range(full.counts.measured))
    keys = {(step.prompt, step.run, block.condition) for step, block in steps}
    assert len(keys) == len(steps)


def test_a_plan_is_the_same_each_time_and_another_with_another_shuffle() -> None:
    def blocks(shuffle: int) -> list[Any]:
        return [(b.condition, b.order, tuple(b.steps())) for b in plan(**FULL, shuffle=shuffle).blocks()]

    assert blocks(1) == blocks(1)
    assert blocks(1) != blocks(2)
    assert plan(**FULL).digest(()) == plan(**FULL).digest(())


@pytest.mark.parametrize(
    "change", [{"runs": 9}, {"seed": 8}, {"max_tokens": 5}, {"top_logprobs": None}, {"shuffle": 2}]
)
def test_the_digest_follows_every_setting(change: dict[str, Any]) -> None:
    assert plan(**change).digest(()) != plan().digest(())
    assert plan(4).digest(()) != plan(5).digest(())
    assert plan().digest(("a",)) != plan().digest(("b",))


def test_times_follow_each_other_and_conditions_change_their_order() -> None:
    blocks = list(plan(**FULL).blocks())
    times = [dict(block.condition)["time"] for block in blocks]
    assert times == sorted(times)
    half = len(blocks) // 2
    first, second = ([dict(b.condition) | {"time": ""} for b in part] for part in (blocks[:half], blocks[half:]))
    assert first != second
    assert sorted(map(str, first)) == sorted(map(str, second))


def test_an_order_is_a_permutation_and_the_first_is_the_files_own() -> None:
    orders = {dict(block.condition)["order"]: block.order for block in plan(20).blocks()}
    assert orders["0"] == tuple(range(20))
    assert orders["1"] != orders["0"]
    assert sorted(orders["1"]) == list(range(20))


def test_background_requests_are_planned_and_counted() -> None:
    loaded = plan(load=("off", "on"))
    released = 0
    for block in loaded.blocks():
        steps = list(block.steps())
        assert all(step.background == 0 for step in steps) or block.load
        assert not block.load or steps[0].background > 0, "load must be there from the first request"
        released += sum(step.background for step in steps)
    assert released == loaded.counts.background > 0
    step = next(s for b in loaded.blocks() if b.load for s in b.steps())
    assert loaded.background(step, 0) == loaded.background(step, 0) != loaded.background(step, 1)


def test_counts_name_everything_that_is_sent() -> None:
    counts = plan(prefix=("cold", "warm"), streaming=("off", "on"), runs=4, concurrency=(1,)).counts
    assert (counts.measured, counts.background) == (5 * 4 * 4, 0)
    assert counts.warming == 5 * 2 * 2 * 2  # prompts × streaming × times × orders
    assert counts.probes == 2
    assert counts.total == 80 + 40 + 2


def test_the_cost_has_every_token_in_it() -> None:
    one = plan(1, runs=2, concurrency=(1,), max_tokens=10)
    assert one.cost(Prices(0, 1e6)) == 2 * 10
    assert one.cost(Prices(1e6, 0)) == 2 * len("Say 0") / 4
    assert one.cost(Prices(0, 0)) == 0


def test_questions_carry_the_settings() -> None:
    full = plan(**FULL, seed=11, max_tokens=3)
    asks = {(b.seeded, b.stream): full.ask(b, next(b.steps())) for b in full.blocks()}
    assert {key: (ask.seed, ask.stream) for key, ask in asks.items()} == {
        (True, True): (11, True),
        (True, False): (11, False),
        (False, True): (None, True),
        (False, False): (None, False),
    }
    assert {(a.max_tokens, a.temperature, a.top_logprobs) for a in asks.values()} == {(3, 0.7, 5)}


def test_what_cannot_be_shown_is_said_beforehand() -> None:
    assert plan(40).warnings() == []
    assert "32" in plan(5, runs=4).warnings()[0]
    assert "temperature 0" in plan(40, seeds=("fixed", "none")).warnings()[0]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"runs": 1}, "runs"),
        ({"times": 0}, "times"),
        ({"orders": 0}, "orders"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"concurrency": ()}, "concurrency"),
        ({"concurrency": (0,)}, "concurrency"),
        ({"concurrency": (4, 4)}, "concurrency"),
        ({"load": ("high",)}, "load"),
        ({"prefix": ("luke",)}, "prefix"),
        ({"seeds": ()}, "seed"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_wrong_settings_name_the_field(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Experiment(**values)
    assert caught.value.field == field


def test_what_can_show_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="times"):
        plan(runs=2, times=3)
