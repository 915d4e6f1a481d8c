"""A server with a known fault, over real HTTP: the audit finds its rate and names its cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from audits import audited, prompts_of
from fault_server import fault_server
from stub_server import Answer, stub

from samebits.audit.result import Result, evaluate, verdict
from samebits.audit.stub import Fault


def found_in(path: Path, fault: Fault, *, seed: int, **values: object) -> Result:
    server = fault_server(fault, seed)
    settings = {"runs": 12, "max_tokens": 32, "top_logprobs": None} | values
    try:
        ran = audited(server, path, prompts=prompts_of(8), **settings)
    finally:
        server.close()
    return evaluate(ran.observations)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_the_rate_of_a_fault_is_within_its_interval(tmp_path: Path, rate: float) -> None:
    result = found_in(tmp_path / "j", Fault(rate=rate, variants=50), seed=3)
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
    result = found_in(tmp_path / "j", Fault(cause=cause, rate=0.5), seed=1, **values)  # type: ignore[arg-type]
    [text] = [a for a in result.attributions if a.view == "text"]
    assert text.causes == (cause,)


def test_negative_control_a_fault_without_a_cause_is_pinned_on_nothing(tmp_path: Path) -> None:
    result = found_in(tmp_path / "j", Fault(rate=0.3), seed=7, concurrency=(1, 8), streaming=("off", "on"))
    [text] = [a for a in result.attributions if a.view == "text"]
    assert text.causes == ()
    assert result.repeat_rate is not None
    assert result.repeat_rate < 0.9


def test_a_cache_that_is_never_hit_is_not_exercised(tmp_path: Path) -> None:
    with stub(lambda incoming: Answer("yes")) as server:
        server.seen = _Blind()
        ran = audited(server, tmp_path / "j", prompts=prompts_of(1), runs=8, prefix=("cold", "warm"), top_logprobs=None)
    result = evaluate(ran.observations)
    assert result.attributions[0].factor("prefix").status == "not exercised"
    assert any("Not exercised" in line and "prefix" in line for line in verdict(result))


class _Blind(set[str]):
    def __contains__(self, item: object) -> bool:
        return False
