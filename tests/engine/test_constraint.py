"""Constraints in the engine: applied where section 4 of the contract says, to one row each, until the output ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pytest
from fakes import CTX, EOS, VOCAB, Answer, FakeDecoder, Run, alone, ask, make_engine, some_requests
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits import kernels
from samebits.engine import Request, SamplingParams, sampler
from samebits.engine.request import Sequence
from samebits.engine.sampler import sample_rows
from samebits.engine.stops import StopMatcher
from samebits.errors import ConstraintError, InputError
from samebits.kernels import reference
from samebits.numerics import assert_bitwise_equal


@dataclass
class Rule:
    """A constraint with a rule that is easy to check: after a token t come ids near (t + 1) * step, or the end.

    Attributes:
        step: tells one rule from another.
        most: tokens after which it is finished.
        dead: tokens after which it allows nothing.
        breaks: tokens that it cannot accept.
    """

    step: int = 1
    most: int = 6
    dead: int | None = None
    breaks: int | None = None
    vocab_size: int = VOCAB
    taken: list[int] = field(default_factory=list)

    def fork(self) -> Self:
        return replace(self, taken=list(self.taken))

    def ids(self) -> set[int]:
        if len(self.taken) == self.dead:
            return set()
        start = (self.taken[-1] + 1) * self.step if self.taken else self.step
        return {(start + i) % EOS for i in range(4)} | ({EOS} if len(self.taken) > 2 else set())

    def allowed(self) -> np.ndarray:
        return np.isin(np.arange(VOCAB), list(self.ids()))

    def accept(self, token_id: int) -> None:
        if len(self.taken) == self.breaks:
            raise ConstraintError("planted")
        assert token_id in self.ids() - {EOS}
        self.taken.append(token_id)

    @property
    def finished(self) -> bool:
        return len(self.taken) == self.most


class Sharing(Rule):
    """The fault of a fork that is none."""

    def fork(self) -> Self:
        return self


def constrained(kind: type[Rule] = Rule, count: int = 18) -> list[Request]:
    """Requests with rules of their own, among some that have none."""
    requests = some_requests(count, seed=9)
    return [
        r if i % 5 == 4 else replace(
            r,
            params=replace(r.params, ignore_eos=False, logprobs=2, max_tokens=8, n=1 + i % 3 if i % 2 else 1),
            constraint=kind(step=1 + i % 7, most=4 + i % 4),
        )
        for i, r in enumerate(requests)
    ]  # fmt: skip


def follows(answer: Answer, rule: Rule) -> bool:
    fork = Rule(rule.step, rule.most)
    for token in answer.token_ids:
        if token not in fork.ids():
            return False
        if token != EOS:
            fork.accept(token)
    return True


def check_load(kind: type[Rule] = Rule, **options: Any) -> Any:
    requests = constrained(kind)
    made = make_engine(**options)
    answers = ask(made, requests)
    for request, got in zip(requests, answers, strict=True):
        assert got == alone(request), "an answer depends on its neighbours"
        if isinstance(request.constraint, Rule):
            assert all(follows(a, request.constraint) for a in got)
    return made.stats, answers


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_answers_do_not_depend_on_the_load(prefix_cache: bool) -> None:
    stats, answers = check_load(prefix_cache=prefix_cache)
    assert max(stats.batch_sizes) > 15, "not exercised: no large batch"
    reasons = {(a.finish_reason, a.stop_reason) for choices in answers for a in choices}
    assert {("stop", None), ("stop", EOS)} <= reasons, "not exercised: both ends"
    stats, _ = check_load(prefix_cache=prefix_cache, pages=31, page_size=2, max_batch=9, chunk=40)
    assert stats.preemptions > 1, "not exercised: nothing was preempted"


def test_control_forks_that_share_their_state_are_seen() -> None:
    with pytest.raises(AssertionError):
        check_load(Sharing)


def test_control_a_neighbours_constraint_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real, last = sampler.exclude, []

    def late(row: np.ndarray, constraint: Any) -> None:
        last.append(constraint)
        real(row, last[-2] if len(last) > 1 else constraint)

    requests = constrained()
    expected = [alone(r) for r in requests]
    monkeypatch.setattr(sampler, "exclude", late)
    try:
        answers = ask(make_engine(), requests)
    except AssertionError as error:  # of the rule, which was given a token that it does not allow
        assert "token_id in self.ids" in str(error)  # noqa: PT017
    else:
        assert answers != expected, "the comparison cannot see the fault"


def test_the_constraint_of_a_request_is_not_changed() -> None:
    rule = Rule()
    request = Request((1, 2), SamplingParams(n=3, temperature=1.0, seed=1, max_tokens=9), constraint=rule)
    first = ask(make_engine(), [request, request])
    assert rule.taken == []
    assert first[0] == first[1]
    assert len({a.token_ids for a in first[0]}) > 1, "not exercised: all choices are one"


# ---- the step of the contract ----------------------------------------------------------------------------------------

PARAMS = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from((1.0, 1.3)),
        "frequency_penalty": st.sampled_from((0.0, 1.0)),
        "logit_bias": st.none() | st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=5),
        "temperature": st.sampled_from((0.0, 0.3, 2.0)),
        "top_k": st.integers(0, 6),
        "top_p": st.sampled_from((1.0, 0.9, 0.2)),
        "min_p": st.sampled_from((0.0, 0.3)),
        "seed": st.integers(-(2**63), 2**63 - 1),
    }
)


def sequence(output: list[int], rule: Rule | None, **values: Any) -> Sequence:
    params, stream = SamplingParams(**values), None
    any_stream: Any = stream
    tokens = [7, 9, *output]
    return Sequence(0, 0, 0, params, params.seed or 0, tokens, 2, 99, any_stream, StopMatcher(()), constraint=rule)


@settings(max_examples=300)
@given(PARAMS, st.integers(1, 9), st.integers(0, 10_000))
def test_excluded_after_bias_and_before_temperature(values: dict[str, Any], step: int, seed: int) -> None:
    row = np.random.default_rng(seed).normal(0, 4, VOCAB).astype(np.float32)
    rule = Rule(step, taken=[3, 4, 5])
    s = sequence([3, 4, 5], rule, **values)
    p = s.params
    adjusted = reference.adjust(
        row, [7, 9], [3, 4, 5], repetition=p.repetition_penalty, frequency=p.frequency_penalty, bias=p.logit_bias
    )
    adjusted[[i for i in range(VOCAB) if i not in rule.ids()]] = -np.inf
    expected = reference.sample(adjusted, p.temperature, p.top_k, p.top_p, p.min_p, s.seed, 3, 0)
    before = row.copy()
    assert sample_rows(CTX, row[None], [s])[0].token_id == expected
    assert_bitwise_equal(row, before, "the logits were changed")


def test_top_p_acts_on_what_is_allowed() -> None:
    """Two allowed ids of equal weight far below the best: cut first, neither would be left."""
    row = np.full((1, VOCAB), -20, np.float32)
    row[0, 40] = 10
    drawn = {
        sample_rows(CTX, row, [sequence([], Rule(2), temperature=1.0, top_p=0.9, seed=seed)])[0].token_id
        for seed in range(60)
    }
    assert drawn == {2, 3, 4, 5}


def test_log_probabilities_are_those_of_the_model() -> None:
    row = np.random.default_rng(1).normal(0, 4, (1, VOCAB)).astype(np.float32)
    scores = np.empty_like(row)
    kernels.log_softmax(CTX, row, scores)
    (got,) = sample_rows(CTX, row, [sequence([], Rule(2), logprobs=3)])
    assert got.token_id in Rule(2).ids()
    assert got.logprob == float(scores[0, got.token_id])
    assert [t.token_id for t in got.top] == np.argsort(-row[0])[:3].tolist()
    assert got.token_id != got.top[0].token_id, "not exercised: the best was allowed"


def test_bias_cannot_bring_back_what_is_excluded() -> None:
    row = np.zeros((1, VOCAB), np.float32)
    (got,) = sample_rows(CTX, row, [sequence([], Rule(2), logit_bias={50: 100.0})])
    assert got.token_id == 2


# ---- ends and faults -------------------------------------------------------------------------------------------------


def one(rule: Rule, **values: Any) -> Answer:
    values = {"max_tokens": 20, "logit_bias": {EOS: -100.0}} | values
    requests = some_requests(9, seed=2)
    answers = ask(
        make_engine(), [*requests[:4], Request((1, 2), SamplingParams(**values), constraint=rule), *requests[4:]]
    )
    got = answers.pop(4)
    assert answers == [alone(r) for r in requests], "a neighbour changed"
    return got[0]


def test_a_finished_constraint_stops_the_output() -> None:
    got = one(Rule(most=6))
    assert (got.finish_reason, got.stop_reason, len(got.token_ids)) == ("stop", None, 6)
    assert EOS not in got.token_ids


def test_the_end_of_the_model_is_an_end_where_it_is_allowed() -> None:
    got = one(Rule(most=9), logit_bias={EOS: 100.0})
    assert (got.finish_reason, got.stop_reason, len(got.token_ids)) == ("stop", EOS, 4)


def test_a_cut_output_has_length_and_a_whole_one_has_not() -> None:
    assert [one(Rule(most=6), max_tokens=n).finish_reason for n in (5, 6, 7)] == ["length", "stop", "stop"]


def test_nothing_allowed_fails_the_request_alone() -> None:
    got = one(Rule(dead=4))
    assert (got.finish_reason, len(got.token_ids)) == ("error", 4)
    assert got.error is not None
    assert got.error.startswith("ConstraintError: the constraint allows no token here")
    assert one(Rule(dead=4), temperature=1.0, seed=1, n=2, logprobs=1).finish_reason == "error"


def test_a_constraint_that_breaks_fails_the_request_alone() -> None:
    got = one(Rule(breaks=3))
    assert (got.finish_reason, len(got.token_ids), got.error) == ("error", 4, "ConstraintError: planted")


def test_logits_that_are_not_finite_are_still_named_so() -> None:
    made = make_engine(decoder=FakeDecoder(lambda tokens: len(tokens) > 4))
    ((got,),) = ask(made, [Request((1, 2), SamplingParams(max_tokens=9), constraint=Rule())])
    assert got.error is not None
    assert got.error.startswith("NumericsError")


@pytest.mark.parametrize(
    ("rule", "values", "field"),
    [(Rule(), {"ignore_eos": True}, "ignore_eos"), (Rule(vocab_size=VOCAB + 1), {}, "constraint")],
)
def test_what_does_not_fit_is_refused(rule: Rule, values: dict[str, Any], field: str) -> None:
    run = Run(make_engine())
    with pytest.raises(InputError) as caught:
        run.engine.add(Request((1,), SamplingParams(**values), constraint=rule))
    assert caught.value.field == field
    assert not run.engine.busy
