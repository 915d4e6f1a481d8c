"""Approaches are measured by the audit's own means, and what cannot be measured is said."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "api"))

from samebits.audit.observation import Evidence, Observation, Timing, as_condition
from samebits.audit.prompts import Prompt
from samebits.audit.targets import ModelSpec, TransformersSpec
from samebits.audit.targets import transformers as module
from samebits.audit.tradeoff import Approach, Row, Size, Speed, Tradeoff, approaches, compare
from samebits.audit.tradeoff.measure import best_speed
from samebits.errors import InputError, MeasurementError
from small_model import write_model

PROMPTS = tuple(Prompt(id=f"p{i}", messages=({"role": "user", "content": t},)) for i, t in enumerate(("Hi", "Why?")))
SMALL = Size(streams=2, runs=2, rounds=2, max_tokens=6)


def ours(folder: str, name: str, **values: object) -> Approach:
    return Approach(name=name, what="x", spec=ModelSpec(name=name, path=folder), **values)  # type: ignore[arg-type]


def stock(folder: str) -> Approach:
    return Approach(name="default", what="x", spec=TransformersSpec(name="default", path=folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


def test_rows_have_speed_and_repetition_of_the_same_requests(folder: str) -> None:
    chosen = [
        ours(folder, "greedy"),
        ours(folder, "sampled, a seed", temperature=1.5),
        ours(folder, "sampled, no seed", temperature=1.5, seeded=False),
    ]
    result = asyncio.run(compare(folder, chosen, PROMPTS, SMALL))
    greedy, seeded, unseeded = result.rows
    for row in result.rows:
        assert row.speed is not None
        assert min(row.speed.alone, row.speed.together) > 0
        assert row.texts is not None
        assert row.texts.count == len(PROMPTS)
    assert greedy.texts is not None
    assert seeded.texts is not None
    assert seeded.bits is not None
    assert unseeded.texts is not None
    assert greedy.texts.value == seeded.texts.value == seeded.bits.value == 1
    assert unseeded.texts.value is not None
    assert unseeded.texts.value < 1, "negative control"


def test_what_is_missing_is_said_and_the_rest_measured(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("no_such_package",))
    said: list[str] = []
    chosen = [stock(folder), ours(folder, "a"), ours(folder, "b")]
    result = asyncio.run(compare(folder, chosen, PROMPTS, SMALL, said.append))
    missing, *measured = result.rows
    assert missing.reason is not None
    assert "no_such_package" in missing.reason
    assert any("default is not measured" in line for line in said)
    assert result.measured == tuple(measured)
    assert result.relative(measured[0]) is None, "there is no default to relate to"


def test_with_less_than_two_nothing_is_compared(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("no_such_package",))
    with pytest.raises(MeasurementError, match=r"1 approach .*no_such_package"):
        asyncio.run(compare(folder, [stock(folder), ours(folder, "a")], PROMPTS, SMALL))


def test_failed_requests_are_no_speed(folder: str) -> None:
    too_long = Prompt(id="long", messages=({"role": "user", "content": "x" * 600},))
    with pytest.raises(MeasurementError, match=r"16 requests failed with ContextLengthError"):
        asyncio.run(compare(folder, [ours(folder, "a"), ours(folder, "b")], [PROMPTS[0], too_long], SMALL))


def run(started: float, seconds: float, tokens: int | None, block: str = "0") -> Observation:
    return Observation(
        target="t",
        prompt_id="p",
        run=0,
        condition=as_condition({"order": block}),
        text="x",
        evidence=Evidence(completion_tokens=tokens),
        timing=Timing(started=started, total_s=seconds),
    )


def test_speed_is_that_of_the_best_block() -> None:
    slow = [run(0, 1, 10), run(1, 1, 10)]  # 20 tokens in 2 s
    fast = [run(9, 2, 30, "1"), run(9, 3, 30, "1")]  # 60 in 3 s, at the same time
    assert best_speed(slow) == 10
    assert best_speed([*fast, *slow]) == 20
    with pytest.raises(MeasurementError, match="no count"):
        best_speed([run(0, 1, None)])


def test_speeds_are_relative_to_the_default(folder: str) -> None:
    base, other = Row(stock(folder), Speed(10, 20)), Row(ours(folder, "a"), Speed(5, 80))
    result = Tradeoff("m", SMALL, (other, base))
    assert result.relative(other) == Speed(0.5, 4.0)
    assert result.relative(base) == Speed(1.0, 1.0)


@pytest.mark.parametrize("values", [{"streams": 1}, {"runs": 1}, {"rounds": 0}, {"max_tokens": 0}])
def test_sizes_out_of_range_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(values))):
        Size(**values)


def test_every_approach_is_there_once(folder: str) -> None:
    found = approaches(folder, 8)
    assert len({a.name for a in found}) == len(found) == 10
    kinds = {(type(a.spec).__name__, a.temperature > 0, a.seeded) for a in found}
    assert len(kinds) == 6, "both engines: greedy, sampled with a seed and without"
    profiles = {a.spec.profile for a in found if isinstance(a.spec, ModelSpec)}
    assert profiles == {"fp32", "bf16", "int8"}
    frameworks = {(a.spec.max_batch, a.spec.deterministic) for a in found if isinstance(a.spec, TransformersSpec)}
    assert frameworks == {(8, False), (1, False), (8, True)}
