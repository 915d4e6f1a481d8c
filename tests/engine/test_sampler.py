"""From logits to tokens: bit for bit as the reference, and a row for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes import CTX, VOCAB
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits import kernels
from samebits.engine import SamplingParams
from samebits.engine.request import Sequence
from samebits.engine.sampler import adjust, sample_rows
from samebits.engine.stops import StopMatcher
from samebits.kernels import reference
from samebits.numerics import assert_bitwise_equal


def sequence(prompt: list[int], output: list[int] | None = None, index: int = 0, **values: Any) -> Sequence:
    params = SamplingParams(**values)
    stream: Any = None
    return Sequence(
        0, 0, index, params, params.seed or 0, [*prompt, *(output or [])], len(prompt), 99, stream, StopMatcher(())
    )


def by_reference(row: np.ndarray, s: Sequence) -> tuple[np.ndarray, int]:
    p = s.params
    adjusted = reference.adjust(
        row,
        s.tokens[: s.prompt_length],
        s.output,
        repetition=p.repetition_penalty,
        frequency=p.frequency_penalty,
        presence=p.presence_penalty,
        bias=p.logit_bias,
    )
    return adjusted, reference.sample(
        adjusted, p.temperature, p.top_k, p.top_p, p.min_p, s.seed, len(s.output), s.index
    )


IDS = st.integers(0, VOCAB - 1)
PARAMS = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from((1.0, 0.7, 1.1, 1 / 3, 10.0)) | st.floats(0.01, 10),
        "frequency_penalty": st.sampled_from((0.0, 0.1, -2.0)) | st.floats(-2, 2),
        "presence_penalty": st.sampled_from((0.0, 0.3, 2.0)) | st.floats(-2, 2),
        "logit_bias": st.none() | st.dictionaries(IDS, st.floats(-100, 100), max_size=5),
        "temperature": st.sampled_from((0.0, 1e-8, 0.3, 1.0, 2.0)),
        "top_k": st.integers(0, VOCAB + 3),
        "top_p": st.sampled_from((1.0, 0.9, 0.2, 1e-6)),
        "min_p": st.sampled_from((0.0, 0.05, 1.0)),
        "seed": st.integers(-(2**63), 2**63 - 1),
    }
)


@settings(max_examples=500)
@given(PARAMS, st.lists(IDS, min_size=1, max_size=20), st.lists(IDS, max_size=20), st.integers(0, 127), IDS)
def test_as_the_reference(values: dict[str, Any], prompt: list[int], output: list[int], index: int, seed: int) -> None:
    row = np.random.default_rng(seed).normal(0, 4, VOCAB).astype(np.float32)
    before = row.copy()
    s = sequence(prompt, output, index, **values)
    adjusted, token = by_reference(row, s)
    assert_bitwise_equal(adjust(row, s) + np.float32(0), adjusted + np.float32(0), "adjusted")
    assert sample_rows(CTX, row[None], [s])[0].token_id == token
    assert_bitwise_equal(row, before, "the logits were changed")


def test_control_the_order_of_penalty_and_bias_is_seen() -> None:
    row = np.full(VOCAB, 3.0, np.float32)
    s = sequence([5], [5, 5], repetition_penalty=1.3, frequency_penalty=0.3, logit_bias={5: 0.7})
    only_bias = replace(s, params=SamplingParams(logit_bias={5: 0.7}))
    only_penalty = replace(s, params=replace(s.params, logit_bias=None))
    wrong = adjust(adjust(row, only_bias), only_penalty)
    with pytest.raises(AssertionError):
        assert_bitwise_equal(wrong, by_reference(row, s)[0], "adjusted")


def many(count: int) -> tuple[np.ndarray, list[Sequence]]:
    rng = np.random.default_rng(3)
    rows = rng.normal(0, 3, (count, VOCAB)).astype(np.float32)
    kinds: list[dict[str, Any]] = [
        {},
        {"temperature": 1.0, "seed": 3, "logprobs": 4},
        {"temperature": 0.5, "seed": 3, "top_p": 0.8, "presence_penalty": 1.0},
        {"logprobs": 0, "logit_bias": {9: 4.0}},
    ]
    return rows, [sequence([i % VOCAB], [1] * (i % 5), i % 3, **kinds[i % 4]) for i in range(count)]


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rows, sequences = many(40)
    alone = [sample_rows(CTX, rows[i : i + 1], [s])[0] for i, s in enumerate(sequences)]
    assert len({a.token_id for a in alone}) > 10
    assert sample_rows(CTX, rows, sequences) == alone
    order = np.random.default_rng(0).permutation(40).tolist()
    assert sample_rows(CTX, np.ascontiguousarray(rows[order]), [sequences[i] for i in order]) == [
        alone[i] for i in order
    ]
    rows[7, 3] = np.nan
    spoilt = sample_rows(CTX, rows, sequences)
    assert spoilt[7].token_id is None
    assert [*spoilt[:7], *spoilt[8:]] == [*alone[:7], *alone[8:]]


def test_log_probabilities_are_those_of_the_model() -> None:
    """Before penalties, bias, temperature and truncation."""
    row = np.random.default_rng(1).normal(0, 3, (1, VOCAB)).astype(np.float32)
    s = sequence([3], [4], temperature=1.5, seed=1, top_k=5, logit_bias={9: 50.0}, frequency_penalty=2.0, logprobs=20)
    scores = np.empty_like(row)
    kernels.log_softmax(CTX, row, scores)
    (got,) = sample_rows(CTX, row, [s])
    assert got.logprob == float(scores[0, got.token_id])
    order = sorted(range(VOCAB), key=lambda i: (-scores[0, i], i))[:20]
    assert [(t.token_id, t.logprob) for t in got.top] == [(i, float(scores[0, i])) for i in order]
    assert sample_rows(CTX, row, [sequence([3], logprobs=0)])[0].top == ()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_case_s08_a_bias_of_100_forces_and_of_minus_100_bans(temperature: float) -> None:
    rng = np.random.default_rng(2)
    for seed in range(50):
        row = rng.normal(0, 4, (1, VOCAB)).astype(np.float32)
        best = int(row.argmax())
        forced, banned = (
            sequence([1], temperature=temperature, seed=seed, logit_bias=bias)
            for bias in ({int(row.argmin()): 100}, {best: -100})
        )
        assert sample_rows(CTX, row, [forced])[0].token_id == int(row.argmin())
        got = sample_rows(CTX, row, [banned])[0].token_id
        assert got != best
        if temperature == 0:
            assert got == int(np.argsort(-row[0], kind="stable")[1])


@pytest.mark.parametrize(
    "values",
    [{"temperature": 1, "top_k": 1}, {"temperature": 0}, {"temperature": 1, "top_p": 1e-6}, {"temperature": 1e-8}],
)
def test_case_s04_of_equal_best_ids_the_lowest(values: dict[str, Any]) -> None:
    row = np.full((1, 400), -10, np.float32)
    row[0, [17, 301]] = 21.375
    got = {sample_rows(CTX, row, [sequence([1], seed=seed, **values)])[0].token_id for seed in range(200)}
    assert got == {17}
    drawn = {sample_rows(CTX, row, [sequence([1], seed=s, temperature=1)])[0].token_id for s in range(200)}
    assert drawn == {17, 301}, "not exercised: without truncation both are drawn"


def test_case_s01_a_seeded_draw_beside_unseeded_and_other_seeds() -> None:
    row = np.zeros((1, VOCAB), np.float32)
    a = sequence([1], [2, 3], seed=42, temperature=0.8)
    alone = sample_rows(CTX, row, [a])
    for seed in range(20):
        b = sequence([1], [2, 3], seed=seed, temperature=0.8)
        assert sample_rows(CTX, np.repeat(row, 3, axis=0), [b, a, b])[1:2] == alone


def test_case_s02_choice_and_token_index_enter_the_draw() -> None:
    row = np.zeros((1, 4096), np.float32)
    for seed in (0, -1, 42, 2**63 - 1, -(2**63)):
        cases = [sequence([1], [2] * t, index, seed=seed, temperature=1) for t in range(8) for index in range(4)]
        drawn = [sample_rows(CTX, row, [s])[0].token_id for s in cases]
        assert len(set(drawn)) > 28, "draws repeat"
        assert drawn == [by_reference(row[0], s)[1] for s in cases]


def test_the_best_reported_is_the_chosen_where_log_probabilities_tie() -> None:
    """Logits apart by one unit in the last place share a log-probability; the order is that of the logits."""
    row = np.ones((1, VOCAB), np.float32)
    row[0, 7], row[0, 40] = 0.99999994, 1.0000001
    row[0, 41:] = -5
    (got,) = sample_rows(CTX, row, [sequence([1], logprobs=20)])
    assert got.token_id == got.top[0].token_id == 40
    by_logit = sorted(range(VOCAB), key=lambda i: (-row[0, i], i))[:20]
    assert [t.token_id for t in got.top] == by_logit
    scores = np.empty_like(row)
    kernels.log_softmax(CTX, row, scores)
    by_score = sorted(range(VOCAB), key=lambda i: (-scores[0, i], i))[:20]
    assert by_score != by_logit, "not exercised: no log-probabilities tie where logits differ"


def test_nothing_is_computed_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("argmax", "sample", "log_softmax_at", "topk"):
        real = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *a, name=name, real=real: (calls.append(name), real(*a))[1])
    rows = np.random.default_rng(1).normal(0, 3, (3, VOCAB)).astype(np.float32)
    for expected, values in (
        (["argmax"], [{}, {}, {}]),
        (["sample"], [{"temperature": 1.0}] * 3),
        (["argmax", "sample"], [{}, {"presence_penalty": 1.0}, {}]),
        (["argmax", "log_softmax_at"], [{}, {"logprobs": 0}, {"logprobs": 0}]),
        (["argmax", "topk", "log_softmax_at"], [{"logprobs": 0}, {"logprobs": 2}, {}]),
    ):
        calls.clear()
        sample_rows(CTX, rows, [sequence([1], **v) for v in values])
        assert calls == expected
