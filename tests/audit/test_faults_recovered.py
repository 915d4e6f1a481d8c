"""A fault of a server is recovered at its rate, and laid to its cause, over HTTP in nearly all of many audits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from audits import audited, plan_of, prompts_of
from fault_server import fault_server, second_time

from samebits.audit.attribution import Attribution, attribute
from samebits.audit.intervals import rate_interval
from samebits.audit.stub import Cause, Fault

PROMPTS = prompts_of(6)
# Runs of each prompt in each of the cells of load, prefix and time. Of 0.6 % so many that 20 flips are to be expected:
# ten are needed for a cause to be named at the level of 1 % (2⁻⁹ for three factors), and 20 become fewer in one of 200.
RUNS = {0.5: 2, 0.1: 8, 0.006: 139, 0.0: 4}
CAUSES: tuple[Cause, ...] = ("load", "prefix", "time")


def found_in(path: Path, cause: Cause, rate: float, seed: int) -> Attribution:
    """What an audit of a faulty server finds about its texts."""
    settings: dict[str, Any] = {
        "runs": 2 * RUNS[rate],
        "load": ("off", "on"),
        "prefix": ("cold", "warm"),
        "times": 2,
        "orders": 2 if RUNS[rate] % 2 == 0 and RUNS[rate] > 2 else 1,
        "max_tokens": 32,
        "top_logprobs": None,
        "shuffle": seed,
    }
    server = fault_server(Fault(cause=cause, rate=rate, since=second_time(plan_of(PROMPTS, **settings))), seed)
    try:
        ran = audited(server, path, prompts=PROMPTS, **settings)
    finally:
        server.close()
    assert not any(run.failed for run in ran.observations)
    return attribute(ran.observations, "text", seed=seed)


@dataclass(frozen=True)
class Score:
    """In how many audits the cause alone was named, and in how many the rate was recovered."""

    named: int
    recovered: int


def score(folder: Path, cause: Cause, rate: float, seeds: range) -> Score:
    named = recovered = 0
    for seed in seeds:
        found = found_in(folder / f"{cause}-{rate}-{seed}", cause, rate, seed)
        off, on = found.factor(cause).levels
        # With 99 %, as a hundred intervals of 95 % miss five times.
        interval = rate_interval(on.departures, on.runs, 0.99)
        named += found.causes == ((cause,) if rate else ())
        recovered += off.departures == 0 and interval.low <= rate <= interval.high
    return Score(named, recovered)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_fault_is_recovered_and_laid_to_its_cause(tmp_path: Path, cause: Cause, rate: float) -> None:
    assert score(tmp_path, cause, rate, range(2)) == Score(2, 2)


def test_negative_control_a_fault_of_another_rate_is_not_recovered(tmp_path: Path) -> None:
    found = found_in(tmp_path / "j", "load", 0.5, 0)
    _, on = found.factor("load").levels
    interval = rate_interval(on.departures, on.runs, 0.99)
    assert not interval.low <= 0.1 <= interval.high


@pytest.mark.proof
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_a_fault_is_recovered_in_95_of_100_seeds(tmp_path: Path, cause: Cause, rate: float) -> None:
    found = score(tmp_path, cause, rate, range(100))
    print(f"{cause} {rate:g}: {found}")
    assert found.named >= 95
    assert found.recovered >= 95


@pytest.mark.proof
@pytest.mark.parametrize("cause", CAUSES)
def test_six_in_a_thousand_are_recovered_in_95_of_100_seeds(tmp_path: Path, cause: Cause) -> None:
    """6,672 requests an audit, besides background: half an hour or more for each cause."""
    found = score(tmp_path, cause, 0.006, range(100))
    print(f"{cause} 0.006: {found}")
    assert found.named >= 95
    assert found.recovered >= 95
