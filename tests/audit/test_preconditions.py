"""A check that did not meet its case says "not exercised"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samebits.audit.observation import Evidence, Observation, Timing, as_condition
from samebits.audit.preconditions import chunked_prefill, exercised, seed_use
from samebits.audit.stub import Design, StubModel, simulate

LEVELS = {
    "concurrency": ("1", "8"),
    "load": ("off", "on"),
    "prefix": ("cold", "warm"),
    "streaming": ("off", "on"),
    "order": ("0", "1"),
    "time": ("0", "1"),
}


def runs() -> list[Observation]:
    return list(simulate(StubModel(), Design(prompts=2, runs=1, levels=LEVELS)))


@pytest.mark.parametrize("factor", LEVELS)
def test_a_factor_that_was_met_is_shown(factor: str) -> None:
    assert exercised(factor, runs()).shown, exercised(factor, runs()).why


@pytest.mark.parametrize(
    ("factor", "evidence", "why"),
    [
        ("concurrency", {"in_flight": 1}, "8 in flight: 0 of 64 runs (not reached)"),
        ("concurrency", {"in_flight": None}, "not reached"),
        ("load", {"background": 0}, "beside 0 of 64 runs"),
        ("load", {"background": 3}, "none beside 0 of 64"),
        ("load", {"background": None}, "0 of 64"),
        ("prefix", {"cached_tokens": 0}, "0 of 64 warm runs"),
        ("prefix", {"cached_tokens": 16}, "median of cached tokens 16 warm, 16 cold"),
        ("prefix", {"cached_tokens": None}, "does not tell"),
        ("streaming", {"stream_events": 1}, "0 of 64"),
    ],
)
def test_a_factor_that_was_not_met_is_not_exercised(factor: str, evidence: dict[str, int | None], why: str) -> None:
    changed = [replace(o, evidence=replace(o.evidence, **evidence)) for o in runs()]  # type: ignore[arg-type]
    found = exercised(factor, changed)
    assert not found.shown
    assert why in found.why


def test_one_level_of_concurrency_may_be_out_of_reach() -> None:
    made = simulate(StubModel(), Design(levels={"concurrency": ("1", "8", "32")}))
    changed = [replace(o, evidence=replace(o.evidence, in_flight=min(8, o.evidence.in_flight or 0))) for o in made]
    found = exercised("concurrency", changed)
    assert found.shown
    assert "32 in flight: 0 of 32 runs (not reached)" in found.why


def test_blocks_that_overlap_say_nothing_about_time() -> None:
    assert not exercised("time", [replace(o, timing=None) for o in runs()]).shown
    at_once = [replace(o, timing=Timing(started=0.0, total_s=1.0)) for o in runs()]
    assert "overlapping" in exercised("time", at_once).why
    assert not exercised("time", at_once).shown


def test_one_prompt_has_no_order() -> None:
    assert not exercised("order", [o for o in runs() if o.prompt_id == "p000"]).shown


def test_a_factor_of_ones_own_counts_as_met() -> None:
    assert exercised("colour", runs()).shown


def test_prompts_that_are_never_cut() -> None:
    assert chunked_prefill(runs()).shown
    short = [replace(o, evidence=replace(o.evidence, prefill_chunks=1)) for o in runs()]
    assert not chunked_prefill(short).shown
    assert "0 of 128" in chunked_prefill(short).why
    assert not chunked_prefill([replace(o, evidence=Evidence()) for o in runs()]).shown


def seeded(text: str, *, sent: int | None, echoed: int | None, level: str = "fixed", run: int = 0) -> Observation:
    return Observation(
        target="t",
        prompt_id="p",
        run=run,
        condition=as_condition({"seed": level}),
        text=text,
        evidence=Evidence(seed_sent=sent, seed_echoed=echoed),
    )


def test_a_seed_that_comes_back_was_forwarded() -> None:
    found = seed_use([seeded("a", sent=7, echoed=7)] * 3)
    assert (found.forwarding, found.sent, found.echoed, found.differing) == ("forwarded", 3, 3, 0)


def test_a_seed_that_is_dropped_on_the_way_is_seen() -> None:
    """The harness has a seed and the target uses another one."""
    assert seed_use([seeded("a", sent=1, echoed=1), seeded("b", sent=1, echoed=93)]).forwarding == "not forwarded"
    assert seed_use([seeded("a", sent=1, echoed=None)]).forwarding == "not verifiable"
    assert seed_use([seeded("a", sent=1, echoed=1), seeded("a", sent=1, echoed=None)]).forwarding == "not verifiable"
    assert seed_use([seeded("a", sent=None, echoed=5)]).forwarding == "not sent"


def test_a_seed_at_temperature_zero_has_nothing_to_do() -> None:
    fixed = [seeded("a", sent=1, echoed=1, run=i) for i in range(3)]
    same = [seeded("a", sent=None, echoed=None, level="none", run=i) for i in range(3)]
    other = [replace(same[0], text="b"), *same[1:]]
    assert not seed_use(fixed).exercise.shown
    assert not seed_use([*fixed, *same]).exercise.shown
    assert "do not vary" in seed_use([*fixed, *same]).exercise.why
    assert seed_use([*fixed, *other]).exercise.shown
