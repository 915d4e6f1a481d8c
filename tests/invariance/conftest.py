"""A model and ways to ask it, shared by the invariance tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.errors import ModelError
from samebits.models.load import find_smollm2
from samebits.numerics import assert_bitwise_equal
from small_model import write_model

NEW_TOKENS = 12


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """For tests that load a model many times or take a slow path."""
    return write_model(tmp_path_factory.mktemp("small"), layers=3, inner=160, context=2048)


@pytest.fixture(scope="session")
def real_model(small_model: str) -> str:
    """SmolLM2 where its package is installed, else the small random model."""
    try:
        find_smollm2()
    except ModelError:
        return small_model
    return "smollm2"


@dataclass(frozen=True)
class Answer:
    """What must not change: ids, and every bit of every log-probability."""

    token_ids: tuple[int, ...]
    logprobs: np.ndarray

    def require_same(self, other: Answer, name: str) -> None:
        assert self.token_ids == other.token_ids, f"{name}: {self.token_ids} against {other.token_ids}"
        assert_bitwise_equal(other.logprobs, self.logprobs, name)


Ask = Callable[..., list[Answer]]


@pytest.fixture(scope="session")
def ask() -> Ask:
    """Asks a model for greedy answers with log-probabilities (or with the parameters given)."""

    def answers(llm: LLM, prompts: Sequence[Sequence[int]], **parameters: object) -> list[Answer]:
        values = {"max_tokens": NEW_TOKENS, "ignore_eos": True, "logprobs": 0} | parameters
        params = SamplingParams.from_mapping(values)
        completions = llm.generate([list(p) for p in prompts], params)
        assert all(c.error is None for c in completions)
        return [Answer(c.token_ids, c.logprobs) for c in completions if c.logprobs is not None]

    return answers


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """64 prompts of 1 to 300 tokens; ids that both models have."""
    rng = np.random.default_rng(6)
    lengths = [1, 2, 15, 16, 17, 31, 33, 64, 100, 255, 257, 300]
    return [rng.integers(0, 256, lengths[i % len(lengths)] + i // len(lengths)).tolist() for i in range(64)]


@pytest.fixture(scope="session")
def alone(real_model: str, prompts: list[list[int]], ask: Ask) -> Iterator[Callable[[str], list[Answer]]]:
    """The answers of a profile, one request at a time, nothing reused: what the others are compared with."""
    known: dict[str, list[Answer]] = {}

    def get(profile: str) -> list[Answer]:
        if profile not in known:
            with LLM(real_model, profile, max_batch=1, prefix_cache=False) as llm:
                known[profile] = ask(llm, prompts[:24])
                assert set(llm.engine.stats.batch_sizes) == {1}
        return known[profile]

    yield get
    known.clear()
