"""The simulated target does what its fault says, and nothing else."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from samebits.audit.stub import Cause, Design, Fault, Seen, StubModel, simulate
from samebits.errors import InputError

MET: dict[Cause, Seen] = {
    "always": Seen(),
    "concurrency": Seen(in_flight=2),
    "load": Seen(background=1),
    "prefix": Seen(cached=True),
    "streaming": Seen(streamed=True),
    "order": Seen(order=1),
    "time": Seen(elapsed=3600.0),
}


@pytest.mark.parametrize("cause", MET)
def test_answers_flip_at_the_rate_where_the_cause_is_met(cause: Cause) -> None:
    model = StubModel(Fault(cause=cause, rate=0.1), 3)
    flips = sum(model.answer("p", MET[cause], ticket).flipped for ticket in range(10_000))
    assert 900 < flips < 1100  # 1,000, ± 3.3 standard errors
    for other, seen in MET.items():
        if other != cause and cause != "always":
            assert not any(model.answer("p", seen, ticket).flipped for ticket in range(300)), other


def test_the_second_replica_flips_and_shows_its_fingerprint() -> None:
    model = StubModel(Fault(cause="fingerprint", rate=0.5))
    answers = [model.answer("p", Seen(), ticket) for ticket in range(2000)]
    flipped = [a for a in answers if a.flipped]
    assert {a.fingerprint for a in answers} == {"stub-a", "stub-b"}
    assert {a.fingerprint for a in flipped} == {"stub-b"}
    assert 400 < len(flipped) < 600


def test_everything_follows_from_seed_and_ticket() -> None:
    model = StubModel(Fault(rate=0.5), 9)
    assert model.answer("p", Seen(), 5) == replace(model).answer("p", Seen(), 5)
    flips = [[StubModel(Fault(rate=0.5), s).answer("p", Seen(), t).flipped for t in range(64)] for s in (9, 10)]
    assert flips[0] != flips[1]


def test_answers_differ_by_prompt_and_by_variant() -> None:
    model = StubModel(Fault(rate=1.0, variants=8))
    wrong = {model.answer("p", Seen(), ticket).text for ticket in range(300)}
    proper = {StubModel().answer(p, Seen(), 0).text for p in "pqr"}
    assert len(wrong) == 8
    assert len(proper) == 3
    assert not wrong & proper


def test_a_flip_of_bits_leaves_the_text() -> None:
    right, wrong = (StubModel(Fault(rate=r, part="logprobs")).answer("p", Seen(), 0) for r in (0.0, 1.0))
    assert right.token_ids == wrong.token_ids
    assert all(0 < abs(a - b) < 1e-5 for a, b in zip(right.logprobs, wrong.logprobs, strict=True))


def test_a_design_is_full() -> None:
    design = Design(prompts=3, runs=2, levels={"load": ("off", "on"), "concurrency": ("1", "8", "32")})
    made = list(simulate(StubModel(), design))
    assert len(made) == design.size == 36
    cells = {(o.prompt_id, o.condition, o.run) for o in made}
    assert len(cells) == 36
    assert {dict(o.condition)["concurrency"] for o in made} == {"1", "8", "32"}
    assert len({o.text for o in made}) == 3
    assert all(a.timing and b.timing and a.timing.started != b.timing.started for a, b in itertools.pairwise(made))


def test_a_fault_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="fault"):
        Fault(rate=1.5)
    with pytest.raises(InputError, match="fault"):
        Fault(variants=0)
