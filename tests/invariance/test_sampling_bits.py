"""Seeds: a seeded answer depends on its seed and its choice, not on neighbours, n or the order of requests."""

from __future__ import annotations

import pytest

from samebits import LLM, SamplingParams
from samebits.numerics import PROFILES

PROMPT = [10, 200, 31, 77, 45]
SEEDED = {"max_tokens": 24, "temperature": 1.0, "top_p": 0.95, "ignore_eos": True, "logprobs": 0}


def bits(completion: object) -> tuple[object, ...]:
    return completion.token_ids, completion.logprobs.tobytes()  # type: ignore[attr-defined]


@pytest.mark.parametrize("profile", PROFILES)
def test_neighbours_do_not_reach_a_seeded_request(profile: str, real_model: str) -> None:
    """Case S01."""
    seeded = SamplingParams.from_mapping(SEEDED | {"seed": 42})
    unseeded = SamplingParams.from_mapping(SEEDED)
    with LLM(real_model, profile) as llm:
        [expected] = llm.generate(PROMPT, seeded)
        others = set()
        for _ in range(4):
            first, second = llm.generate([PROMPT, PROMPT], [seeded, unseeded])
            assert bits(first) == bits(expected)
            assert first.seed == 42
            others.add(bits(second))
        assert max(llm.engine.stats.batch_sizes) == 2, "not exercised: they never shared a step"
    assert len(others) > 1, "not exercised: the unseeded arm does not vary"


def test_choices_depend_on_seed_and_index_alone(real_model: str) -> None:
    """Case S02, with the greatest seed."""
    for seed in (0, -1, 2**63 - 1, -(2**63)):
        with LLM(real_model) as llm:
            four = llm.generate(PROMPT, SamplingParams.from_mapping(SEEDED | {"seed": seed, "n": 4}))
            two = llm.generate(PROMPT, SamplingParams.from_mapping(SEEDED | {"seed": seed, "n": 2}))
            one = llm.generate(PROMPT, SamplingParams.from_mapping(SEEDED | {"seed": seed}))
        assert [bits(c) for c in four[:2]] == [bits(c) for c in two]
        assert bits(four[0]) == bits(one[0])
        assert len({c.token_ids for c in four}) == 4, "choices are copies of each other"
