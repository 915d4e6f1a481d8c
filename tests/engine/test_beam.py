"""Beam search: the reference's hypotheses and scores, bit by bit, whatever shares the engine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import beam_reference
import numpy as np
import pytest
from beam_reference import CONTRACT, Found, Rules
from fakes import CONTEXT, EOS, VOCAB, FakeCache, FakeDecoder, Run, make_engine, some_requests

from samebits import LLM
from samebits.engine import (
    BeamCompletion,
    BeamParams,
    BeamSearch,
    Completion,
    Engine,
    Request,
    SamplingParams,
    Searches,
    TopLogprob,
    run_searches,
)
from samebits.engine.beam import MAX_WIDTH, length_divisor
from samebits.errors import CapacityError, ContextLengthError, InputError, NumericsError
from samebits.numerics import assert_bitwise_equal

PROMPTS = [request.prompt_token_ids for request in some_requests(64, seed=5)]


def letters(ids: Sequence[int]) -> str:
    return "".join(chr(ord("a") + i % 26) for i in ids)


def fake_logits(ids: list[int]) -> np.ndarray:
    """The fake model's row after ids, computed at once in one page."""
    cache = FakeCache(1, CONTEXT)
    for position, token in enumerate(ids):
        before = int(cache.chain[position - 1]) if position else 0
        cache.tokens[position] = token
        cache.chain[position] = hash((before, token, position)) & (2**62 - 1)
    return FakeDecoder().logits(cache, np.arange(len(ids)))


def found(completions: Sequence[BeamCompletion]) -> list[Found]:
    assert all(c.error is None for c in completions)
    return [
        Found(c.token_ids, c.logprobs.tobytes(), np.float32(c.total).tobytes(), np.float32(c.score).tobytes())
        for c in completions
        if c.logprobs is not None
    ]


def searched(engine: Engine, prompts: Sequence[Sequence[int]], **params: Any) -> list[list[BeamCompletion]]:
    params = {"width": 5, "max_tokens": 10} | params
    searches = [BeamSearch(engine, p, BeamParams(n=params["width"], **params), letters) for p in prompts]
    run_searches(engine, searches)
    engine.pool.check()
    assert engine.pool.held == 0
    return [search.completions() for search in searches]


def expected(prompt: Sequence[int], rules: Rules = CONTRACT, **params: Any) -> list[Found]:
    values = {"width": 5, "max_tokens": 10, "length_penalty": 1} | params
    return beam_reference.search(
        fake_logits,
        prompt,
        [EOS],
        width=values["width"],
        longest=values["max_tokens"],
        alpha=values["length_penalty"],
        rules=rules,
    )


# ---- the definition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 5, MAX_WIDTH])
@pytest.mark.parametrize("length_penalty", [0, 1, 2])
def test_equals_the_reference_over_the_whole_vocabulary(width: int, length_penalty: int) -> None:
    prompts, params = PROMPTS[:12], {"width": width, "length_penalty": length_penalty, "max_tokens": 16}
    answers = searched(make_engine(), prompts, **params)
    assert [found(a) for a in answers] == [expected(p, **params) for p in prompts]
    if width == 5:
        assert {c.finish_reason for a in answers for c in a} == {"stop", "length"}, "not exercised"


@pytest.mark.parametrize(
    ("rules", "params"),
    [
        (Rules(sums=np.float64), {}),
        (Rules(ids_descending=True), {}),
        (Rules(stops_early=True), {"width": 2, "length_penalty": 2}),
    ],
    ids=["sums", "ids", "end"],
)
def test_control_another_rule_is_told_apart(rules: Rules, params: dict[str, Any]) -> None:
    params = {"max_tokens": 16} | params
    assert [expected(p, **params) for p in PROMPTS[:16]] != [expected(p, rules, **params) for p in PROMPTS[:16]]


class Forgets(FakeDecoder):
    """Its logits depend on half the length alone: ids a, b and ids b, a are both found, and their sums are equal."""

    def logits(self, cache: FakeCache, slots: np.ndarray) -> np.ndarray:
        return forgetful_logits(slots.tolist())


def forgetful_logits(ids: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(len(ids) // 2).standard_normal(VOCAB).astype(np.float32)


def test_equal_sums_go_by_parent() -> None:
    [answer] = searched(make_engine(decoder=Forgets()), [[1, 2]])
    values: dict[str, Any] = {"width": 5, "longest": 10, "alpha": 1}
    assert found(answer) == beam_reference.search(forgetful_logits, [1, 2], [EOS], **values)
    control = beam_reference.search(forgetful_logits, [1, 2], [EOS], **values, rules=Rules(parent_first=False))
    assert found(answer) != control


def test_a_beam_of_one_is_greedy() -> None:
    prompts = PROMPTS[:16]
    engine, greedy = make_engine(), Run(make_engine())
    ids = [greedy.engine.add(Request(p, SamplingParams(max_tokens=10, logprobs=0))) for p in prompts]
    greedy.to_end()
    for answer, request_id in zip(searched(engine, prompts, width=1), ids, strict=True):
        same = greedy.completions[request_id, 0]
        assert answer[0].token_ids == same.token_ids
        assert answer[0].finish_reason == same.finish_reason
        assert_bitwise_equal(answer[0].logprobs, same.logprobs)


def test_text_and_ends() -> None:
    answers = [c for a in searched(make_engine(), PROMPTS[:16]) for c in a]
    assert {c.finish_reason for c in answers} == {"stop", "length"}, "not exercised"
    for c in answers:
        ended = c.token_ids[-1] == EOS
        assert (c.finish_reason, c.stop_reason) == (("stop", EOS) if ended else ("length", None))
        assert c.text == letters(c.token_ids[:-1] if ended else c.token_ids)
        assert ended or len(c.token_ids) == 10
        assert EOS not in c.token_ids[:-1]


def test_scores_descend_and_are_made_of_their_parts() -> None:
    for answer in searched(make_engine(), PROMPTS[:8], length_penalty=0.7):
        assert [c.index for c in answer] == list(range(5))
        assert all(a.score >= b.score for a, b in itertools.pairwise(answer))
        assert len({c.token_ids for c in answer}) == 5
        for c in answer:
            assert c.logprobs is not None
            total = c.logprobs[0]
            for value in c.logprobs[1:]:
                total = total + value
            assert np.float32(c.total).tobytes() == total.tobytes()
            assert np.float32(c.score) == total / length_divisor(len(c.token_ids), 0.7)


def test_n_takes_the_first() -> None:
    engine = make_engine()
    searches = [BeamSearch(engine, PROMPTS[0], BeamParams(width=5, n=n, max_tokens=8), letters) for n in (2, 5)]
    run_searches(engine, searches)
    two, five = (found(s.completions()) for s in searches)
    assert two == five[:2]


# ---- equal scores, by hand -------------------------------------------------------------------------------------------


def answer_of(*best: tuple[int, float]) -> Completion:
    tops = (tuple(TopLogprob(token, logprob) for token, logprob in best),)
    return Completion(0, "", (best[0][0],), None, tops, "length", None, None, 0, SamplingParams(), {})


def test_equal_sums_go_by_parent_then_by_order_of_ids() -> None:
    search = BeamSearch(make_engine(), [1], BeamParams(width=3, n=3, max_tokens=3), letters)
    search.advance([answer_of((7, -1.0), (9, -1.0), (2, -2.0), (3, -4.0))])
    assert [b.token_ids for b in search.live] == [(7,), (9,), (2,)]
    search.advance(
        [
            answer_of((30, -2.0), (8, -2.0), (5, -3.0), (4, -4.0)),  # 30 before 8: its logit was greater
            answer_of((1, -1.0), (6, -2.0), (0, -2.5), (4, -3.0)),
            answer_of((1, -0.5), (2, -1.0), (3, -4.0), (4, -4.0)),
        ]
    )
    assert [b.token_ids for b in search.live] == [(9, 1), (2, 1), (7, 30)]
    assert [b.total for b in search.live] == [-2.0, -2.5, -3.0]


def test_equal_scores_go_by_the_step_they_finished_in() -> None:
    search = BeamSearch(make_engine(), [1], BeamParams(width=2, n=2, max_tokens=2), letters)
    search.advance([answer_of((EOS, -1.0), (5, -1.0), (7, -3.0))])
    assert [h.token_ids for h in search.finished] == [(EOS,)]
    search.advance([answer_of((3, -1.0), (4, -1.5), (6, -9.0)), answer_of((3, -8.0), (4, -9.0), (6, -9.0))])
    assert search.done
    assert [(c.token_ids, c.score) for c in search.completions()] == [((EOS,), -1.0), ((5, 3), -1.0)]


def test_an_end_beyond_the_first_candidates_does_not_finish() -> None:
    search = BeamSearch(make_engine(), [1], BeamParams(width=2, max_tokens=9), letters)
    search.advance([answer_of((5, -1.0), (6, -2.0), (EOS, -3.0))])
    assert (search.finished, [b.token_ids for b in search.live]) == ([], [(5,), (6,)])


# ---- whatever else runs ----------------------------------------------------------------------------------------------


def test_the_same_alone_and_at_any_batch_size() -> None:
    alone = [found(searched(make_engine(max_batch=1), [p])[0]) for p in PROMPTS]
    assert len({len(h.token_ids) for a in alone for h in a}) > 3, "not exercised: searches end together"
    for size in (5, 64):
        engine = make_engine(pages=8192, chunk=1 << 16, max_batch=512)
        assert [found(a) for a in searched(engine, PROMPTS[:size])] == alone[:size]
        assert max(engine.stats.batch_sizes) > size, "not exercised"


class MixesUp(BeamSearch):
    """Takes the beams' answers in another order."""

    def advance(self, answers: Sequence[Completion]) -> None:
        super().advance(answers[::-1])


def test_control_answers_of_the_wrong_beam_are_seen() -> None:
    engine = make_engine()
    search = MixesUp(engine, PROMPTS[0], BeamParams(width=5, n=5, max_tokens=10), letters)
    run_searches(engine, [search])
    assert found(search.completions()) != expected(PROMPTS[0])


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_prefix_cache_shares_pages_and_moves_nothing(page_size: int) -> None:
    engine = make_engine(prefix_cache=True, page_size=page_size)
    assert [found(a) for a in searched(engine, PROMPTS[:8])] == [expected(p) for p in PROMPTS[:8]]
    assert engine.stats.prefix_hits > 40, "not exercised"


def test_preemption_moves_nothing() -> None:
    engine = make_engine(pages=24, chunk=32, prefix_cache=True)
    requests = some_requests(20, seed=9)
    for request in requests:
        engine.add(request)
    for _ in range(3):
        engine.step()
    # Other requests run, so their events are nobody's: only the searches are looked at.
    searches = [BeamSearch(engine, p, BeamParams(width=5, n=5, max_tokens=10), letters) for p in PROMPTS[:8]]
    drive_among_others(engine, searches)
    assert engine.stats.preemptions, "not exercised"
    assert [found(s.completions()) for s in searches] == [expected(p) for p in PROMPTS[:8]]


def drive_among_others(engine: Engine, searches: Sequence[BeamSearch]) -> None:
    """As a server does: requests of a search are requests like any other."""
    running = Searches(engine)
    for search in searches:
        running.start(search)
    done = []
    while engine.busy:
        mine = [event for event in engine.step() if running.owns(event)]
        done += [search for event in mine if (search := running.take(event)) is not None]
    assert sorted(map(id, done)) == sorted(map(id, searches)), "a search was reported done never, or twice"


def test_a_cancelled_search_frees_its_pages_and_leaves_the_others() -> None:
    engine = make_engine()
    running = Searches(engine)
    first, second = (BeamSearch(engine, p, BeamParams(width=5, n=5, max_tokens=10), letters) for p in PROMPTS[:2])
    running.start(first)
    running.start(second)
    for _ in range(4):
        for event in engine.step():
            assert running.take(event) is None
    running.cancel(first)
    running.cancel(first)
    while engine.busy:
        for event in engine.step():
            assert running.take(event) in (None, second)
    assert engine.pool.held == 0
    assert not first.done
    assert found(second.completions()) == expected(PROMPTS[1])


def test_best_ids_are_reported_beside_each_id() -> None:
    [many] = searched(make_engine(), PROMPTS[:1], top_logprobs=20)
    [none] = searched(make_engine(), PROMPTS[:1])
    assert found(many) == found(none) == expected(PROMPTS[0])
    for c in many:
        assert c.logprobs is not None
        assert c.top_logprobs is not None
        assert [len(top) for top in c.top_logprobs] == [20] * len(c.token_ids)
        for token, logprob, top in zip(c.token_ids, c.logprobs.tolist(), c.top_logprobs, strict=True):
            assert {t.token_id: t.logprob for t in top}[token] == logprob
    assert all(c.top_logprobs == ((),) * len(c.token_ids) for c in none)


# ---- refusals and failures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"width": 0}, "width"),
        ({"width": MAX_WIDTH + 1}, "width"),
        ({"width": True}, "width"),
        ({"width": 2.0}, "width"),
        ({"width": 2, "n": 3}, "n"),
        ({"width": 2, "n": 0}, "n"),
        ({"width": 2, "max_tokens": 0}, "max_tokens"),
        ({"width": 2, "length_penalty": 2.1}, "length_penalty"),
        ({"width": 2, "length_penalty": float("nan")}, "length_penalty"),
        ({"width": 2, "length_penalty": "1"}, "length_penalty"),
    ],
)
def test_wrong_parameters_are_refused_by_name(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        BeamParams(**values)
    assert caught.value.field == field


def test_what_cannot_fit_is_refused_before_anything_runs() -> None:
    engine = make_engine(pages=10)
    for prompt, params, error in (
        ([], {}, InputError),
        ([VOCAB], {}, InputError),
        ([1] * 120, {"max_tokens": 9}, ContextLengthError),
        ([1] * 30, {"max_tokens": 11}, CapacityError),
    ):
        with pytest.raises(error):
            BeamSearch(engine, prompt, BeamParams(width=2, **params), letters)
    assert not engine.busy


def test_max_tokens_of_none_goes_to_the_end_of_the_context() -> None:
    [answer] = searched(make_engine(), [[3] * (CONTEXT - 4)], max_tokens=None, width=3)
    assert max(len(c.token_ids) for c in answer) == 4
    assert found(answer) == expected([3] * (CONTEXT - 4), max_tokens=4, width=3)


def test_a_search_whose_logits_overflow_fails_alone() -> None:
    bad = PROMPTS[1]
    decoder = FakeDecoder(overflows=lambda tokens: tuple(tokens[: len(bad)]) == bad and len(tokens) > len(bad) + 2)
    engine = make_engine(decoder=decoder, pages=1024)
    answers = searched(engine, PROMPTS[:4])
    assert [found(a) for i, a in enumerate(answers) if i != 1] == [expected(PROMPTS[i]) for i in (0, 2, 3)]
    assert [c.finish_reason for c in answers[1]] == ["error"] * 5
    assert all(isinstance(c.error, NumericsError) for c in answers[1])


def test_an_interrupted_search_leaves_nothing() -> None:
    class Interrupts(FakeDecoder):
        def forward(self, batch: Any, cache: Any) -> Any:
            if len(self.batch_sizes) == 3:
                raise KeyboardInterrupt
            return super().forward(batch, cache)

    engine = make_engine(decoder=Interrupts())
    with pytest.raises(KeyboardInterrupt):
        searched(engine, PROMPTS[:4])
    assert not engine.busy
    assert engine.pool.held == 0


# ---- the length's power ----------------------------------------------------------------------------------------------


def test_the_divisor_is_the_correctly_rounded_power() -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        for length in (1, 2, 3, 7, 10, 1000, 8191, 2**31 - 1):
            for alpha in (-2.0, -0.3, 0, 0.1, 0.5, 1.0, 1.3, 2.0):
                right = np.float32(float(mpmath.mpf(length) ** mpmath.mpf(alpha)))
                assert length_divisor(length, alpha).tobytes() == right.tobytes(), (length, alpha)
    assert length_divisor(5, 1.0).dtype == np.float32


# ---- a real model ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Any:
    with LLM("smollm2") as model:
        yield model


def test_a_real_model_equals_the_reference_and_itself_among_others(llm: LLM) -> None:
    prompts = ["The capital of France is", [{"role": "user", "content": "Answer with one word: what is 2 + 2?"}]]
    ids = [llm.encode_prompt(p) for p in prompts]
    right = [
        beam_reference.search(
            lambda tokens: llm.logits(tokens)[-1],
            prompt,
            llm.engine.model.eos_token_ids,
            width=4,
            longest=6,
            alpha=1,
        )
        for prompt in ids
    ]
    alone = [found(llm.beam_search(prompt, 4, 6, n=4)) for prompt in ids]
    assert alone == right
    together = llm.beam_search([*prompts, *(f"{i} is a number" for i in range(3))], 4, 6, n=4)
    assert [found(together[:4]), found(together[4:8])] == right
    assert llm.engine.stats.prefix_hits, "not exercised"
    assert together[4].text == llm.tokenizer.decode(together[4].token_ids)


@pytest.mark.peer
def test_hypotheses_are_those_of_transformers(smollm2_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="install the extra 'peer'")
    transformers = pytest.importorskip("transformers", reason="install the extra 'peer'")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32
    )
    with LLM("smollm2", "fp32") as ours, torch.no_grad():
        for prompt in ("The capital of France is", "Water boils at 100 degrees Celsius because"):
            ids = ours.encode_prompt(prompt)
            answers = ours.beam_search(ids, 4, 16, n=4)
            theirs = model.generate(
                torch.tensor([ids]),
                num_beams=4,
                num_return_sequences=4,
                max_new_tokens=16,
                do_sample=False,
                length_penalty=1.0,
                early_stopping=False,
                output_scores=True,
                return_dict_in_generate=True,
            )
            for i, answer in enumerate(answers):
                assert tuple(theirs.sequences[i, len(ids) :].tolist())[: len(answer.token_ids)] == answer.token_ids
                assert abs(float(theirs.sequences_scores[i]) - answer.score) < 1e-3
