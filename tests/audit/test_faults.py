"""A server with a known fault, over real HTTP: the audit finds its rate and names its cause."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fault_server import fault_server
from stub_server import Answer, stub

from samebits.audit.carry_out import carry_out
from samebits.audit.journal import Journal, read_journal
from samebits.audit.plan import Experiment, Plan
from samebits.audit.prompts import Prompt
from samebits.audit.result import Result, evaluate, verdict
from samebits.audit.stub import Fault
from samebits.audit.targets import HttpSpec


def audited(path: Path, fault: Fault, *, seed: int, **values: object) -> Result:
    said = tuple(Prompt(id=f"p{i}", messages=({"role": "user", "content": f"Say {i}"},)) for i in range(8))
    settings = {"runs": 12, "concurrency": (1,), "max_tokens": 32, "top_logprobs": None} | values
    plan = Plan(Experiment(**settings), said)  # type: ignore[arg-type]
    server = fault_server(fault, seed)
    try:
        with Journal(path, plan.digest(()), plan.document()) as journal:
            spec = HttpSpec(name="stub", url=server.url)
            work = carry_out(plan, [spec], journal, timeout=5, resend=False, advance=lambda name, count: None)
            asyncio.run(work)
    finally:
        server.close()
    return evaluate(list(read_journal(path)))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_the_rate_of_a_fault_is_within_its_interval(tmp_path: Path, rate: float) -> None:
    result = audited(tmp_path / "j", Fault(rate=rate, variants=50), seed=3)
    departures = result.metrics.view("text").departure_rate
    assert departures.interval is not None
    assert departures.interval.low <= rate <= departures.interval.high
    assert (result.repeat_rate == 1) == (rate == 0)
    assert verdict(result)[0].startswith("No difference" if rate == 0 else "NOT reproducible")


@pytest.mark.parametrize(
    ("cause", "values"),
    [
        ("concurrency", {"concurrency": (1, 8)}),
        ("load", {"load": ("off", "on")}),
        ("prefix", {"prefix": ("cold", "warm")}),
        ("streaming", {"streaming": ("off", "on")}),
    ],
)
def test_the_cause_of_a_fault_is_named_and_no_other(tmp_path: Path, cause: str, values: dict[str, object]) -> None:
    result = audited(tmp_path / "j", Fault(cause=cause, rate=0.5), seed=5, **values)  # type: ignore[arg-type]
    [text] = [a for a in result.attributions if a.view == "text"]
    assert text.causes == (cause,)


def test_negative_control_a_fault_without_a_cause_is_pinned_on_nothing(tmp_path: Path) -> None:
    result = audited(tmp_path / "j", Fault(rate=0.3), seed=7, concurrency=(1, 8), streaming=("off", "on"))
    [text] = [a for a in result.attributions if a.view == "text"]
    assert text.causes == ()
    assert result.repeat_rate is not None
    assert result.repeat_rate < 0.9


def test_a_cache_that_is_never_hit_is_not_exercised(tmp_path: Path) -> None:
    with stub(lambda incoming: Answer("yes")) as server:
        server.seen = _Blind()
        said = (Prompt(id="p", messages=({"role": "user", "content": "Say"},)),)
        plan = Plan(Experiment(runs=8, concurrency=(1,), prefix=("cold", "warm"), top_logprobs=None), said)
        with Journal(tmp_path / "j", plan.digest(()), plan.document()) as journal:
            spec = HttpSpec(name="stub", url=server.url)
            work = carry_out(plan, [spec], journal, timeout=5, resend=False, advance=lambda name, count: None)
            asyncio.run(work)
    result = evaluate(list(read_journal(tmp_path / "j")))
    assert result.attributions[0].factor("prefix").status == "not exercised"
    assert any("Not exercised" in line and "prefix" in line for line in verdict(result))


class _Blind(set[str]):
    def __contains__(self, item: object) -> bool:
        return False
