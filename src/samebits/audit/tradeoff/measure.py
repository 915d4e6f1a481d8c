"""Measures approaches in turns: speed with one request at a time and with many, and repetition over both.

Speed and repetition come from the same requests, so that no approach is fast in one run and reproducible in another.
Approaches take turns in rounds, since a busy neighbour would otherwise meet one of them alone; the speed of a level is
its best block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from samebits.audit.intervals import Estimate
from samebits.audit.journal import Journal, read_journal
from samebits.audit.metrics import measure
from samebits.audit.observation import Observation, as_condition
from samebits.audit.plan import Experiment, Plan
from samebits.audit.prompts import Prompt
from samebits.audit.run import Runner
from samebits.audit.targets import open_target
from samebits.audit.tradeoff.approaches import DEFAULT, Approach
from samebits.counted import counted, part
from samebits.errors import InputError, MeasurementError

ALONE: Final = 1
SEED: Final = 7


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    Attributes:
        streams: requests at a time in the level with many.
        runs: of each prompt at each level in each round.
        rounds: turns of each approach.
        max_tokens: most tokens of an answer.

    Raises:
        InputError: a value is out of range.
    """

    streams: int = 8
    runs: int = 4
    rounds: int = 2
    max_tokens: int = 32

    def __post_init__(self) -> None:
        for name, low, high in (("streams", 2, 1024), ("runs", 2, 1000), ("rounds", 1, 100), ("max_tokens", 1, 10**5)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{value} is out of range", field=name, remedy=f"Give {low} to {high}.")


@dataclass(frozen=True)
class Speed:
    """Output tokens per second: one request at a time, and many."""

    alone: float
    together: float


@dataclass(frozen=True)
class Row:
    """One approach.

    Attributes:
        approach: what was measured.
        speed: None when it was not measured.
        texts: exact-repeat rate of texts over both levels: the audit's own.
        bits: that of log-probabilities.
        reason: why it was not measured.
    """

    approach: Approach
    speed: Speed | None = None
    texts: Estimate | None = None
    bits: Estimate | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Tradeoff:
    """All approaches, measured or not."""

    model: str
    size: Size
    rows: tuple[Row, ...]

    def relative(self, row: Row) -> Speed | None:
        """Speed relative to the default; None where one of the two was not measured."""
        base = next((r.speed for r in self.rows if r.approach.name == DEFAULT), None)
        if base is None or row.speed is None:
            return None
        return Speed(row.speed.alone / base.alone, row.speed.together / base.together)

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows with figures."""
        return tuple(row for row in self.rows if row.speed is not None)


async def compare(
    model: str,
    chosen: Sequence[Approach],
    prompts: Sequence[Prompt],
    size: Size,
    tell: Callable[[str], None] = lambda said: None,
) -> Tradeoff:
    """Measures approaches, one turn each in every round.

    Args:
        model: for the result.
        tell: called with what happens next, and with what cannot be measured.

    Raises:
        MeasurementError: fewer than two could be measured, so that nothing can be compared.
    """
    found: dict[str, list[Observation]] = {approach.name: [] for approach in chosen}
    reasons: dict[str, str] = {}
    for turn in range(size.rounds):
        for approach in chosen:
            if approach.name in reasons:
                continue
            tell(f"round {turn + 1} of {size.rounds}: {approach.name}")
            try:
                found[approach.name] += await _turn(approach, prompts, size, turn)
            except (InputError, MeasurementError) as error:
                reasons[approach.name] = str(error)
                tell(f"{approach.name} is not measured: {error}")
    rows = tuple(_row(approach, found[approach.name], reasons.get(approach.name)) for approach in chosen)
    result = Tradeoff(model, size, rows)
    if len(result.measured) < 2:
        why = "; ".join(f"{row.approach.name}: {row.reason}" for row in rows if row.reason)
        measured = counted(len(result.measured), "approach", "approaches")
        raise MeasurementError(f"{measured} could be measured, so nothing is compared: {why}")
    return result


async def _turn(approach: Approach, prompts: Sequence[Prompt], size: Size, turn: int) -> list[Observation]:
    """The observations of one approach in one round, renumbered so that those of all rounds are runs of one audit."""
    experiment = Experiment(
        runs=size.runs,
        concurrency=(ALONE, size.streams),
        times=1,
        orders=2,
        seeds=("fixed" if approach.seeded else "none",),
        temperature=approach.temperature,
        seed=SEED,
        max_tokens=size.max_tokens,
        top_logprobs=0,
        shuffle=turn,
    )
    plan = Plan(experiment, tuple(prompts))
    target = open_target(approach.spec)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with Journal(path, plan.digest((approach.spec,)), plan.document()) as journal:
            try:
                await target.open(plan.probes(), None)
                await Runner(plan, approach.name, target, journal).run()
            finally:
                await target.close()
        return [_renumbered(o, turn, size) for o in read_journal(path)]


def _renumbered(observation: Observation, turn: int, size: Size) -> Observation:
    # Runs without a seed are compared here, too: how often they repeat is the question.
    levels = dict(observation.condition) | {"time": str(turn), "seed": "fixed"}
    return replace(observation, run=observation.run + turn * size.runs, condition=as_condition(levels))


def _row(approach: Approach, observations: Sequence[Observation], reason: str | None) -> Row:
    if reason is not None:
        return Row(approach, reason=reason)
    metrics = measure(observations)
    if metrics.failures.value:
        error, count = metrics.errors[0]
        return Row(approach, reason=f"{part(count, metrics.runs, 'request')} failed with {error}")
    speed = Speed(
        alone=best_speed(o for o in observations if o.level("concurrency") == str(ALONE)),
        together=best_speed(o for o in observations if o.level("concurrency") != str(ALONE)),
    )
    return Row(approach, speed, metrics.view("text").repeat, metrics.view("logprobs").repeat)


def best_speed(observations: Iterable[Observation]) -> float:
    """Output tokens per second of the best block: from its first request's start to its last one's end.

    Raises:
        MeasurementError: an observation has no times or no count of tokens.
    """
    best = 0.0
    ordered = sorted(observations, key=lambda o: o.condition)
    for _, block in groupby(ordered, key=lambda o: o.condition):
        runs = list(block)
        tokens, begin, end = 0, float("inf"), 0.0
        for run in runs:
            if run.timing is None or run.evidence.completion_tokens is None:
                raise MeasurementError("a run has no times, or no count of tokens")
            tokens += run.evidence.completion_tokens
            begin = min(begin, run.timing.started)
            end = max(end, run.timing.started + run.timing.total_s)
        best = max(best, tokens / (end - begin))
    return best
