"""One call at a time, of an open model, in its own process; and with values of the right types."""

from __future__ import annotations

import datetime
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.engine import Event
from samebits.errors import EngineFailedError, InputError
from samebits.models.decoder import Decoder
from small_model import write_model
from stub_llm import StubLLM
from waiting import PATIENCE_S

CALLS: dict[str, Callable[[LLM], object]] = {
    "generate": lambda llm: llm.generate("a"),
    "beam_search": lambda llm: llm.beam_search("a", 2),
    "logits": lambda llm: llm.logits([1]),
    "close": lambda llm: llm.close(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_within_a_call_is_refused(call: str) -> None:
    llm = StubLLM()
    refused: list[InputError] = []

    def again(index: int, event: Event) -> None:
        with pytest.raises(InputError) as caught:
            CALLS[call](llm)
        refused.append(caught.value)

    [completion] = llm.generate("ab", on_event=again)
    assert [str(error) for error in refused] == [str(refused[0])]
    assert (refused[0].field, refused[0].message) == (call, "another request runs")
    assert completion.token_ids == (97, 98)
    assert llm.generate("c")[0].token_ids == (99,), "the model was not given back"


def test_of_calls_at_once_one_runs_and_each_other_is_refused() -> None:
    """The engine is held where it has looked idle and has no request yet, which is where two calls once met."""
    llm = StubLLM()
    inside, leave = threading.Event(), threading.Event()
    add = llm.engine.add

    def slow(request: Any) -> int:
        inside.set()
        assert leave.wait(PATIENCE_S)
        return int(add(request))

    llm.engine.add = slow
    done: list[Any] = []
    first = threading.Thread(target=lambda: done.extend(llm.generate("ab")))
    first.start()
    assert inside.wait(PATIENCE_S)
    assert not llm.engine.busy, "the check of the engine alone would refuse, and the lock is not tested"
    for call in CALLS.values():
        with pytest.raises(InputError, match="another request runs"):
            call(llm)
    leave.set()
    first.join()
    assert [c.token_ids for c in done] == [(97, 98)]


def test_a_failed_call_gives_the_model_back() -> None:
    llm = StubLLM()
    for _ in range(2):
        with pytest.raises(InputError, match="is refused"):
            llm.generate([[0]])
    assert llm.generate("a")[0].token_ids == (97,)


def test_a_closed_model_says_so() -> None:
    llm = StubLLM()
    llm.close()
    for call in (*list(CALLS.values())[:3], lambda llm: llm.fingerprint, lambda llm: llm.weights_nbytes):
        with pytest.raises(EngineFailedError, match="the model is closed"):
            call(llm)


def test_a_forked_child_is_refused() -> None:
    llm = StubLLM()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads, which is what is tested
        child = os.fork()
    if child == 0:
        code = 1
        try:
            llm.generate("a")
        except EngineFailedError as error:
            code = 7 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert llm.generate("a")[0].token_ids == (97,)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda llm: llm.generate("a", date="2026-01-01"), "date"),
        (lambda llm: llm.generate("a", date=None), "date"),
        (lambda llm: llm.beam_search("a", 2, date=5), "date"),
        (lambda llm: llm.generate("a", on_event=5), "on_event"),
        (lambda llm: llm.generate(np.array("abc")), "prompts"),
        (lambda llm: llm.generate(np.array(5)), "prompts"),
        (lambda llm: llm.logits(None), "token_ids"),
        (lambda llm: llm.logits("ab"), "token_ids"),
        (lambda llm: llm.logits([10**5000]), "token_ids"),
        (lambda llm: llm.logits([10**5000, "a"]), "token_ids"),
        (lambda llm: llm.generate([[10**5000, "a"]]), "prompts[0]"),
        (lambda llm: llm.resolve(None), "params"),
        (lambda llm: llm.resolve(5), "params"),
        (lambda llm: llm.resolve({"seed": 10**5000}), "seed"),
        (lambda llm: SamplingParams(5), "params"),  # type: ignore[call-arg]
    ],
)
def test_values_of_wrong_types_are_refused_by_name(call: Callable[[Any], object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        call(StubLLM())
    assert caught.value.field == field
    assert len(str(caught.value)) < 300


def test_dates_of_both_kinds_are_taken() -> None:
    for date in (datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1)):
        assert StubLLM().generate("a", date=date)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"prefix_cache": "no"}, "prefix_cache"),
        ({"prefix_cache": 1}, "prefix_cache"),
        ({"max_batch": 10**5000}, "max_batch"),
        ({"threads": 10**5000}, "threads"),
        ({"profile": 5}, "profile"),
        ({"profile": np.array(["fp32", "bf16"])}, "profile"),
        ({"isa": b"x"}, "isa"),
        ({"isa": np.array([], str)}, "isa"),
    ],
)
def test_settings_of_wrong_types_are_refused_by_name(keys: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        LLM("no model", **keys)
    assert caught.value.field == field


def test_memory_that_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, new_cache = write_model(tmp_path), Decoder.new_cache

    def small_cache(decoder: Decoder, pages: int, page_size: int) -> Any:
        if pages > 1:  # one is made to learn its size
            raise MemoryError("std::bad_alloc")
        return new_cache(decoder, pages, page_size)

    def no_weights(*_: Any) -> None:
        raise MemoryError("std::bad_alloc")

    LLM(model).close()
    for part, refuse, field in (("new_cache", small_cache, "kv_memory"), ("__init__", no_weights, "model")):
        monkeypatch.setattr(Decoder, part, refuse)
        with pytest.raises(InputError, match="can be had") as caught:
            LLM(model)
        assert caught.value.field == field
