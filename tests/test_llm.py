"""What the Python API takes for a prompt and for parameters, and how it refuses the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samebits import SamplingParams
from samebits.engine import Event, Request
from samebits.errors import InputError
from samebits.inputs import split_prompts
from stub_llm import StubLLM


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.mark.parametrize(
    ("prompts", "ids"),
    [
        ("ab", [(97, 98)]),
        (["ab", "c"], [(97, 98), (99,)]),
        (("a", "b"), [(97,), (98,)]),
        ([1, 2], [(1, 2)]),
        ((1, 2), [(1, 2)]),
        ([[1, 2], (3,)], [(1, 2), (3,)]),
        (range(1, 4), [(1, 2, 3)]),
        (np.array([1, 2]), [(1, 2)]),
        (np.array([[1, 2], [3, 4]]), [(1, 2), (3, 4)]),
        ([np.array([5], np.uint16), [np.int64(6)]], [(5,), (6,)]),
        ([user("a"), user("b")], [(91, 97, 93, 91, 98, 93)]),
        ([[user("a")], "a", [1]], [(91, 97, 93), (97,), (1,)]),
    ],
)
def test_one_prompt_or_many(prompts: Any, ids: list[tuple[int, ...]]) -> None:
    llm = StubLLM()
    completions = llm.generate(prompts)
    assert [r.prompt_token_ids for r in llm.engine.added] == ids
    assert [c.token_ids for c in completions] == ids, "completions are not in the order of prompts"


@pytest.mark.parametrize(
    ("prompts", "field"),
    [
        ("", "prompt"),
        ([], "prompts"),
        ((), "prompts"),
        ([""], "prompt"),
        ([[]], "prompt"),
        (["a", ""], "prompt"),
        (np.array([], np.int64), "prompt"),
        (None, "prompts"),
        (5, "prompts"),
        (b"ab", "prompts"),
        (bytearray(b"ab"), "prompts"),
        ({"role": "user"}, "prompts"),
        ({1, 2}, "prompts"),
        ([b"ab"], "prompts[0]"),
        (["a", 5], "prompts[1]"),
        (["a", None], "prompts[1]"),
        (["a", user("b")], "prompts[1]"),
        ([user("a"), 5], "prompts[0]"),
        ([5, "a"], "prompts[0]"),
        ([True], "prompts[0]"),
        ([1, 2.0], "prompts[0]"),
        ([[1, "a"]], "prompts[0]"),
        ([["a", "b"]], "prompts[0]"),
        ([[[1]]], "prompts[0]"),
        (np.array([1.5]), "prompts[0]"),
        (np.array([True]), "prompts[0]"),
    ],
)
def test_what_is_no_prompt_is_refused_by_name(prompts: Any, field: str) -> None:
    llm = StubLLM()
    with pytest.raises(InputError) as caught:
        llm.generate(prompts)
    assert caught.value.field == field
    assert llm.engine.added == []


@pytest.mark.parametrize("params", [{"seed": 1}, "x", 5, [SamplingParams(), None], [SamplingParams()], []])
def test_what_are_no_parameters_is_refused(params: Any) -> None:
    with pytest.raises(InputError, match=r"^params: "):
        StubLLM().generate(["a", "b"], params)


def test_parameters_for_all_or_for_each() -> None:
    one, two = SamplingParams(seed=1), SamplingParams(seed=2, n=3, top_k=7)
    for given, expected in ((None, [SamplingParams()] * 2), (one, [one, one]), ([one, two], [one, two])):
        llm = StubLLM()
        completions = llm.generate(["a", "b"], given)
        resolved = [llm.resolve(p.explicit) for p in expected]
        assert [r.params for r in llm.engine.added] == [e.params for e in resolved]
        assert [r.origins for r in llm.engine.added] == [e.origins for e in resolved]
        assert [r.params.top_k for r in llm.engine.added] == [p.explicit.get("top_k", 5) for p in expected]
        assert [c.index for c in completions] == [i for p in expected for i in range(p.n)]


def test_a_refused_prompt_takes_back_those_before_it() -> None:
    llm = StubLLM()
    with pytest.raises(InputError, match="is refused"):
        llm.generate([[1], [0]])
    assert llm.engine.cancelled == [0]
    assert not llm.engine.busy


def test_an_error_of_the_caller_ends_all_and_leaves_nothing() -> None:
    llm = StubLLM()

    def fails(index: int, event: Event) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        llm.generate(["a", "b", "c"], on_event=fails)
    assert llm.engine.cancelled == [0, 1]
    assert not llm.engine.busy


def test_generating_while_requests_run_is_refused() -> None:
    llm = StubLLM()
    llm.engine.add(Request((1,), SamplingParams()))
    with pytest.raises(InputError, match=r"^generate: another request runs"):
        llm.generate("a")
    assert llm.engine.busy, "the other request was touched"


@pytest.mark.parametrize("ids", [[], [-1], [256], [10**30], [1] * 9, [1.0], ["a"], [True]])
def test_logits_of_ids_that_do_not_fit_are_refused(ids: Any) -> None:
    with pytest.raises(InputError):
        StubLLM().logits(ids)


def test_closing_twice_does_nothing() -> None:
    llm = StubLLM()
    with llm:
        pass
    llm.close()
    assert not hasattr(llm, "engine")


def test_a_long_prompt_of_ids_is_not_shown_whole() -> None:
    with pytest.raises(InputError) as caught:
        split_prompts([[*range(10_000), "a"]])  # type: ignore[list-item]
    assert len(str(caught.value)) < 300
