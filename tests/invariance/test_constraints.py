"""The bits of constrained answers against load: other grammars beside them, order, chunks, prefixes, preemption, n."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.numerics import first_difference
from samebits.structured import Choice, GrammarConstraint, JsonObject, JsonSchema, Lark, Regex, StructuredSpec

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SPECS: tuple[StructuredSpec | None, ...] = (
    JsonSchema.of(PERSON),
    JsonObject(),
    None,
    Regex("[0-9]{3}-[0-9]{4}"),
    Choice(("red", "red wine", "green")),
    Lark('start: word ("," word)*\nword: /[a-z]{1,5}/'),
    JsonSchema.of({"type": "array", "items": {"enum": ["a", "b", 1, None]}, "minItems": 2, "maxItems": 5}),
)
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 7, "n": 3},
    {"temperature": 0.8, "seed": -3, "top_p": 0.9, "top_k": 40},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "logit_bias": {34: 3.0}},
)
Asked = tuple[list[int], SamplingParams, StructuredSpec | None]


NEW_TOKENS = 16


@pytest.fixture(scope="module")
def requests(prompts: list[list[int]]) -> list[Asked]:
    """Every structure twice, with other parameters; prompts of up to 66 tokens."""
    short = [p for p in prompts if len(p) < 67]
    asked = []
    for i in range(2 * len(SPECS)):
        params = SamplingParams.from_mapping({"max_tokens": NEW_TOKENS, "logprobs": 1} | KINDS[i % len(KINDS)])
        asked.append((short[i], params, SPECS[i % len(SPECS)]))
    return asked


def ask(llm: LLM, requests: Sequence[Asked]) -> list[list[Any]]:
    """The choices of each request."""
    prompts, params, specs = map(list, zip(*requests, strict=True))
    done = iter(llm.generate(prompts, params, structured=specs))
    return [[next(done) for _ in range(p.n)] for p in params]


def same(a: Any, b: Any) -> bool:
    visible = [(c.token_ids, c.text, c.finish_reason, c.stop_reason, str(c.error), c.top_logprobs) for c in (a, b)]
    return visible[0] == visible[1] and first_difference(a.logprobs, b.logprobs) is None


def require_same(expected: list[list[Any]], actual: list[list[Any]], name: str) -> None:
    for i, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        for a, b in zip(ours, theirs, strict=True):
            assert same(a, b), f"{name}: request {i}, choice {a.index}: {a} against {b}"


@pytest.fixture(scope="module")
def alone(real_model: str, requests: list[Asked]) -> list[list[Any]]:
    """Each request with an engine for itself."""
    with LLM(real_model, max_batch=1, prefix_cache=False) as llm:
        answers = [ask(llm, [r])[0] for r in requests]
    choices = [c for answer in answers for c in answer]
    assert {c.finish_reason for c in choices} == {"stop", "length"}, "not exercised: one kind of end"
    assert all(c.error is None for c in choices)
    return answers


def test_beside_other_grammars_in_any_order(real_model: str, requests: list[Asked], alone: list[list[Any]]) -> None:
    with LLM(real_model, max_batch=64, prefix_cache=False) as llm:
        require_same(alone, ask(llm, requests), "all at once")
        assert max(llm.engine.stats.batch_sizes) > len(requests), "not exercised: no large batch"
        order = np.random.default_rng(1).permutation(len(requests)).tolist()
        shuffled = ask(llm, [requests[i] for i in order])
        require_same([alone[i] for i in order], shuffled, "in another order")


def test_with_reuse_chunks_and_threads(real_model: str, requests: list[Asked], alone: list[list[Any]]) -> None:
    with LLM(real_model, max_batch=7, chunk=33, threads=1) as llm:
        for name in ("cold", "warm"):
            require_same(alone, ask(llm, requests), name)
        assert llm.engine.stats.prefix_hits > len(requests) // 2, "not exercised: nothing was reused"


def test_preempted_or_not(real_model: str, requests: list[Asked], alone: list[list[Any]]) -> None:
    with LLM(real_model, page_size=16, prefix_cache=False) as roomy:
        page = roomy._decoder.cache_bytes(16)
    with LLM(real_model, page_size=16, kv_memory=14 * page, prefix_cache=False) as llm:
        require_same(alone, ask(llm, requests), "preempted")
        assert llm.engine.stats.preemptions > 0, "not exercised: nothing was preempted"


def test_a_choice_does_not_depend_on_n(real_model: str, requests: list[Asked], alone: list[list[Any]]) -> None:
    prompt, params, spec = requests[1]
    assert params.n == 3
    assert spec is not None
    first = SamplingParams.from_mapping({"max_tokens": NEW_TOKENS, "logprobs": 1} | KINDS[1] | {"n": 1})
    with LLM(real_model) as llm:
        require_same([alone[1][:1]], ask(llm, [(prompt, first, spec)]), "n = 1")
    assert len({c.token_ids for c in alone[1]}) > 1, "not exercised: all choices are one"


@pytest.mark.parametrize("fault", ["forks share", "a neighbour's mask"])
def test_control_a_fault_is_seen(
    fault: str, real_model: str, requests: list[Asked], alone: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [0, 1, 8, 12]
    if fault == "forks share":
        monkeypatch.setattr(GrammarConstraint, "fork", lambda self: self)
    else:
        real, masks = GrammarConstraint.allowed, []

        def stale(self: GrammarConstraint) -> Any:
            masks.append(real(self))
            return masks[-2] if len(masks) > 5 else masks[-1]

        monkeypatch.setattr(GrammarConstraint, "allowed", stale)
    with LLM(real_model, prefix_cache=False) as llm:
        answers = ask(llm, [requests[i] for i in chosen])
    with pytest.raises(AssertionError):
        require_same([alone[i] for i in chosen], answers, fault)


def test_what_ended_is_valid_and_what_was_cut_is_left_so(requests: list[Asked], alone: list[list[Any]]) -> None:
    from samebits.errors import OutputInvalid
    from samebits.structured import validate

    judged = 0
    for (_, _, spec), choices in zip(requests, alone, strict=True):
        for c in choices if spec is not None else []:
            judged += 1
            if c.finish_reason == "stop":
                validate(c.text, spec)
            else:
                assert len(c.token_ids) == NEW_TOKENS
                try:
                    validate(c.text, spec)
                except OutputInvalid as error:
                    assert error.incomplete, (c.text, str(error))  # noqa: PT017 - a text may also be whole when cut
    assert judged > 15
