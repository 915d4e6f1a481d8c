"""Audits that mislead, as they were reported elsewhere: each as a server over HTTP, with the verdict that is right.

Too few runs; conditions that were never met; levels of equality mixed into one number; seeds that go nowhere; alarms of
tests that only had enough data.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from audits import audited, prompts_of
from fault_server import fault_server
from stub_server import Answer, Incoming, stub

from samebits.audit.compare import compare
from samebits.audit.observation import Observation
from samebits.audit.prompts import Prompt
from samebits.audit.result import Result, evaluate, verdict
from samebits.audit.stub import Fault
from samebits.audit.views import VIEWS, View

ONE_BLOCK = {"times": 1, "orders": 1}


def result_of(path: Path, model: Callable[[Incoming], Answer], prompts: int = 2, **values: Any) -> Result:
    with stub(model) as server:
        return evaluate(audited(server, path, prompts=prompts_of(prompts), **ONE_BLOCK | values).observations)


def said_of(result: Result) -> str:
    return "\n".join(verdict(result))


# ---- too few runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.006])
@pytest.mark.parametrize("runs", [5, 20, 500])
def test_the_verdict_never_claims_more_than_the_runs_show(tmp_path: Path, rate: float, runs: int) -> None:
    """Whatever is seen or not: what is excluded lies above the true rate, and no number of runs is called enough."""
    seeds = range(6 if runs < 500 else 1)
    for seed in seeds:
        server = fault_server(Fault(rate=rate, variants=1), seed)
        ran = audited(server, tmp_path / f"{seed}", prompts=prompts_of(1), runs=runs, top_logprobs=None, **ONE_BLOCK)
        server.close()
        result = evaluate(ran.observations)
        text = result.metrics.view("text")
        said = said_of(result)
        assert "deterministic" not in said
        assert (text.verdict == "equal") == (text.excluded is not None) == ("No difference seen." in said)
        if text.excluded is not None:
            assert text.excluded == pytest.approx(min(0.5, 2.9957 / runs), rel=1e-3), "three over N"
            assert "it takes 299 runs of a prompt" in said
        if runs == 5:
            assert result.metrics.smallest_rate is None, "a coin flip is missed in 6.25 % of cases"
            assert text.excluded is None or "not even a coin flip, which takes 6" in said
        else:
            assert result.metrics.smallest_rate == pytest.approx({20: 0.139, 500: 0.00597}[runs], rel=0.01)


def test_negative_control_five_runs_do_miss_coin_flips(tmp_path: Path) -> None:
    """So that the test above met what it is about: some of the audits of five runs see nothing at all."""
    seen = []
    for seed in range(40):
        flips = random.Random(seed).choices("ab", k=6)
        result = result_of(tmp_path / f"{seed}", lambda incoming, f=flips: Answer(f[incoming.number]), 1, runs=5)  # type: ignore[misc]
        seen.append(result.metrics.view("text").verdict)
    assert 0 < seen.count("equal") < 12


# ---- conditions that were never met ----------------------------------------------------------------------------------


def cold(incoming: Incoming) -> Answer:
    """The cache is on, and never hit."""
    return Answer(extra={"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}})


def in_chunks(number: int) -> Callable[[Incoming], Answer]:
    return lambda incoming: Answer(extra={"samebits": {"prefill_chunks": number, "seed": incoming.body.get("seed")}})


def unseeded_varies(incoming: Incoming) -> Answer:
    return Answer("yes" if "seed" in incoming.body else f"{incoming.number}")


UNMET: dict[str, tuple[Callable[[Incoming], Answer], dict[str, Any]]] = {
    "prefix": (cold, {"prefix": ("cold", "warm"), "runs": 6}),
    "chunked prefill": (in_chunks(1), {}),
    "concurrency": (lambda incoming: Answer(), {"concurrency": (1, 32), "runs": 8}),  # 16 requests, 32 in flight
    "seed": (lambda incoming: Answer(), {"seeds": ("fixed", "none")}),
    "streaming": (lambda incoming: Answer("one"), {"streaming": ("off", "on")}),
}
MET: dict[str, tuple[Callable[[Incoming], Answer], dict[str, Any]]] = {
    "prefix": (lambda incoming: Answer(), UNMET["prefix"][1]),
    "chunked prefill": (in_chunks(2), {}),
    "concurrency": (lambda incoming: Answer(delay=0.02), {"concurrency": (1, 4), "runs": 8}),
    "seed": (unseeded_varies, {"seeds": ("fixed", "none"), "temperature": 1.0}),
    "streaming": (lambda incoming: Answer("one two"), {"streaming": ("off", "on")}),
}


def not_exercised(result: Result) -> str:
    return "\n".join(line for line in verdict(result) if line.startswith(("Not exercised", "Not reached")))


@pytest.mark.parametrize("name", UNMET)
def test_a_check_that_never_met_its_case_does_not_pass(tmp_path: Path, name: str) -> None:
    model, values = UNMET[name]
    assert name in not_exercised(result_of(tmp_path / "j", model, **values))


@pytest.mark.parametrize("name", MET)
def test_negative_control_one_that_did_is_not_doubted(tmp_path: Path, name: str) -> None:
    model, values = MET[name]
    assert name not in not_exercised(result_of(tmp_path / "j", model, **values))


# ---- levels of equality ----------------------------------------------------------------------------------------------


EQUAL = set(VIEWS)
JSON_PROMPT = Prompt(id="p", messages=({"role": "user", "content": "Give JSON"},), kind="json")


@pytest.mark.parametrize(
    ("one", "other", "differing"),
    [
        (Answer('{"a": 1}'), Answer('{"a": 1}'), set()),  # ids and clocks of the stub differ in each answer
        (Answer('{"a": 1}'), Answer('{"a": 1}', logprob=-0.250001), {"body", "logprobs"}),
        (Answer('{"a": 1, "b": 2}'), Answer('{"b": 2, "a": 1}'), {"body", "text", "token_ids", "semantic"}),
        (Answer('{"a": 1}'), Answer('{ "a": 1 }'), {"body", "text", "token_ids", "logprobs"}),
        (Answer('{"a": 1}'), Answer('{"a": 2}'), EQUAL - {"logprobs"}),
        (Answer('{"a": 1}'), Answer('{"a": 1}', fingerprint="stub-2"), {"body"}),
    ],
)
def test_each_level_has_a_verdict_of_its_own(tmp_path: Path, one: Answer, other: Answer, differing: set[View]) -> None:
    pair = itertools.cycle((one, other))
    with stub(lambda incoming: next(pair)) as server:
        ran = audited(server, tmp_path / "j", prompts=(JSON_PROMPT,), runs=6, **ONE_BLOCK)
    found = evaluate(ran.observations).metrics.views
    assert {v.view for v in found if v.verdict == "different"} == differing
    assert {v.view for v in found if v.verdict == "equal"} == EQUAL - differing


# ---- seeds -----------------------------------------------------------------------------------------------------------


def seed_refused(incoming: Incoming) -> Answer:
    return Answer("no seed here", status=400) if "seed" in incoming.body else Answer()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda incoming: Answer(seed=incoming.body["seed"]), "Seed: forwarded."),
        (lambda incoming: Answer(seed=42), "Seed: not forwarded."),
        (lambda incoming: Answer(), "Seed: not verifiable."),
        (seed_refused, "Seed: not sent."),
    ],
)
def test_what_became_of_the_seed_is_said(tmp_path: Path, model: Callable[[Incoming], Answer], said: str) -> None:
    assert said in said_of(result_of(tmp_path / "j", model, seed=7))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_seed_that_is_given_is_the_one_in_every_request(tmp_path: Path, seed: int) -> None:
    with stub(lambda incoming: Answer()) as server:
        audited(server, tmp_path / "j", prompts=prompts_of(2), seed=seed, **ONE_BLOCK)
    assert {body["seed"] for body in server.asked} == {seed}


JUDGED = tuple(
    Prompt(id=f"q{i}", messages=({"role": "user", "content": f"Is {i} odd?"},), kind="label", labels=("yes", "no"),
           expected="yes" if i % 2 else "no")
    for i in range(16)
)  # fmt: skip


def graded(path: Path, share: float, seed: int) -> Sequence[Observation]:
    """Answers that are right with this chance, whatever the seed in the request."""
    rng = random.Random(seed)

    def answer(incoming: Incoming) -> Answer:
        odd = int(incoming.prompt.split()[1]) % 2 == 1
        return Answer("yes" if odd == (rng.random() < share) else "no")

    with stub(answer) as server:
        return audited(
            server, path, prompts=JUDGED, runs=3, temperature=1.0, top_logprobs=None, **ONE_BLOCK
        ).observations


def test_a_difference_within_the_spread_of_runs_is_no_drift(tmp_path: Path) -> None:
    """The same model three times: accuracies apart by several points, and none is an improvement on another."""
    found = [graded(tmp_path / f"{seed}", 0.75, seed) for seed in range(3)]
    flips = [compare(a, b, seed=0, power_simulations=0).flips for a, b in itertools.combinations(found, 2)]
    assert max(abs(f.difference) for f in flips if f) > 0.02
    assert all(f is not None and f.verdict in ("no difference seen", "below the floor") for f in flips)
    worse = compare(found[0], graded(tmp_path / "worse", 0.05, 9), seed=0, power_simulations=0)
    assert worse.flips is not None
    assert worse.flips.verdict == "different", "the control"


# ---- alarms of enough data -------------------------------------------------------------------------------------------


def draws(path: Path, seed: int, share: float, runs: int = 150) -> Sequence[Observation]:
    rng = random.Random(seed)
    with stub(lambda incoming: Answer("abcd"[int(rng.random() * 4)] if rng.random() >= share else "zzzz")) as server:
        return audited(server, path, prompts=prompts_of(6), runs=runs, top_logprobs=None, **ONE_BLOCK).observations


def test_shifts_below_the_floor_are_no_alarm_and_equal_data_have_equal_verdicts(tmp_path: Path) -> None:
    base, same = draws(tmp_path / "a", 1, 0.0), draws(tmp_path / "b", 2, 0.0)
    tiny, moved = draws(tmp_path / "c", 3, 0.005), draws(tmp_path / "d", 4, 0.3)
    found = [compare(base, other, seed=0, power_simulations=0) for other in (same, tiny, moved)]
    assert [c.different for c in found] == [False, False, True]
    again = [compare(base, moved, seed=0, power_simulations=0) for _ in range(3)]
    assert all(c == found[2] for c in again)


def test_comparisons_of_a_steady_target_with_itself_never_alarm(tmp_path: Path) -> None:
    """A bit-exact target: replayed answers are compared as such, so there is nothing for chance to do."""
    days = []
    with stub(lambda incoming: Answer(f"{incoming.prompt} always")) as server:
        for day in range(5):
            path = tmp_path / f"{day}"
            days.append(audited(server, path, prompts=prompts_of(6), runs=2, **ONE_BLOCK).observations)
    found = [compare(a, b, seed=0, power_simulations=0) for a, b in itertools.permutations(days, 2)]
    assert not any(c.different for c in found)
    assert {(c.constant, c.mismatches) for c in found} == {(6, 0)}
