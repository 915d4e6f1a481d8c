"""A line of a journal gives back the observation exactly, and nothing else is taken for one."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.audit.observation import (
    Evidence,
    Observation,
    Timing,
    as_condition,
    from_line,
    to_line,
)
from samebits.errors import InputError

FULL = Observation(
    target="a",
    prompt_id="p1",
    run=3,
    condition=as_condition({"prefix": "warm", "concurrency": "8"}),
    text="né\ud800\n",
    token_ids=(5, 2**40),
    tokens=("n", "é"),
    logprobs=(-0.0, -math.inf),
    top_logprobs=((("a", -0.1), ("b", -3.0)), ()),
    finish_reason="stop",
    answer="yes",
    correct=False,
    parsed="null",
    body="sha256:00",
    fingerprint="fp",
    attempts=2,
    evidence=Evidence(in_flight=8, cached_tokens=0, seed_sent=-1),
    timing=Timing(started=1.5, total_s=0.25, first_token_s=0.125),
)


def bits(values: tuple[float, ...]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


@given(
    st.lists(st.tuples(st.integers(), st.floats(allow_nan=False), st.text(st.characters(exclude_categories=[])))),
    st.text(st.characters(exclude_categories=[])),
    st.dictionaries(st.text(), st.text()),
)
def test_a_line_gives_back_the_same_observation(
    tokens: list[tuple[int, float, str]], text: str, levels: dict[str, str]
) -> None:
    before = replace(
        FULL,
        text=text,
        token_ids=tuple(i for i, _, _ in tokens),
        tokens=tuple(s for _, _, s in tokens),
        logprobs=tuple(x for _, x, _ in tokens),
        top_logprobs=tuple(((s, x),) for _, x, s in tokens),
        condition=as_condition(levels),
    )
    line = to_line(before)
    assert line.isascii()
    assert line.count("\n") == 1
    after = from_line(line)
    assert after == before
    assert before.logprobs is not None
    assert after.logprobs is not None
    assert bits(after.logprobs) == bits(before.logprobs)


def test_what_is_unknown_stays_unknown() -> None:
    failed = Observation(target="a", prompt_id="p", run=0, error="timeout")
    assert from_line(to_line(failed)) == failed
    assert "null" not in to_line(failed)
    nan = from_line(to_line(replace(FULL, logprobs=(math.nan, 1)))).logprobs
    assert nan is not None
    assert math.isnan(nan[0])
    assert from_line(to_line(FULL)).parsed == "null"
    assert from_line(to_line(replace(FULL, parsed=None))).parsed is None


def test_negative_control_one_bit_is_a_different_observation() -> None:
    other = replace(FULL, logprobs=(-0.0, math.nextafter(-math.inf, 0)))
    assert from_line(to_line(other)) != FULL
    assert bits((-0.0,)) != bits((0.0,))


HUGE = "1" + "0" * 400  # no float holds it
STARTED = '{"target":"a","prompt_id":"p","run":0,"text":"","timing":{"started":1.0,"total_s":0.5}}'
SCORED = '{"target":"a","prompt_id":"p","run":0,"text":"","logprobs":[-1.0]}'


def test_the_controls_of_numbers_that_are_refused() -> None:
    assert from_line(STARTED).timing is not None
    assert from_line(SCORED).logprobs == (-1.0,)
    assert from_line(SCORED.replace("-1.0", '"-Infinity"')).logprobs == (-math.inf,)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("{", "line"),
        ("[]", "line"),
        ('{"prompt_id":"p","run":0,"text":""}', "target"),
        ('{"target":"a","prompt_id":"p","run":true,"text":""}', "run"),
        ('{"target":"a","prompt_id":"p","run":-1,"text":""}', "run"),
        ('{"target":"a","prompt_id":"p","run":0}', "text"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","error":""}', "text"),
        ('{"target":"a","prompt_id":"p","run":0,"text":null,"error":""}', "text"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","new":1}', "new"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","logprobs":[true]}', "logprobs"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","token_ids":[1,"2"]}', "token_ids"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","token_ids":3}', "token_ids"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","top_logprobs":[3]}', "top_logprobs"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","top_logprobs":[[["a",null]]]}', "top_logprobs"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","logprobs":["x"]}', "logprobs"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","logprobs":[-1.0],"token_ids":[]}', "token_ids"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","top_logprobs":[[["a"]]]}', "top_logprobs"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","condition":{"load":1}}', "condition"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","evidence":{"x":1}}', "evidence.x"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","timing":{"started":1.0}}', "timing.total_s"),
        *((STARTED.replace("1.0", x), "timing.started") for x in ('"NaN"', "1e999", "-1", HUGE, "true")),
        (STARTED.replace("1.0", "NaN"), "line"),
        *((SCORED.replace("-1.0", x), "logprobs") for x in ("1e999", HUGE, "true")),
        *((SCORED.replace("-1.0", x), "line") for x in ("NaN", "-Infinity")),
        (f'{{"target":"a","prompt_id":"p","run":{HUGE},"text":""}}', "run"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","attempts":1e3}', "attempts"),
        ('{"target":"a","prompt_id":"p","run":0,"text":"","evidence":{"in_flight":-1}}', "evidence.in_flight"),
        ("[" * 100_000, "line"),
    ],
)
def test_a_damaged_line_is_refused_by_field(line: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        from_line(line)
    assert caught.value.field == field


def test_a_condition_has_one_form() -> None:
    assert FULL.level("prefix") == "warm"
    assert FULL.level("load") is None
    with pytest.raises(InputError, match="sorted"):
        replace(FULL, condition=(("b", "1"), ("a", "1")))
    with pytest.raises(InputError, match="twice"):
        replace(FULL, condition=(("a", "1"), ("a", "2")))
