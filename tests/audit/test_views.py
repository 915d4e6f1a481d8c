"""Each view sees its own differences and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samebits.audit.observation import Observation
from samebits.audit.views import (
    FAILED,
    SAME_WORDS,
    VIEWS,
    WITHOUT,
    Meaning,
    View,
    classify,
    numbers,
    word_overlap,
    words,
)

BASE = Observation(
    target="t",
    prompt_id="p",
    run=0,
    text='{"name": "Ann", "age": 31}',
    token_ids=(1, 2, 3),
    logprobs=(-0.5, -0.25, -0.125),
    parsed='{"age":31,"name":"Ann"}',
    answer="31",
    body="sha256:a",
)
EXACT: frozenset[View] = frozenset({"body", "text", "token_ids", "logprobs", "parsed", "answer"})


def differing(a: Observation, b: Observation, meaning: Meaning = SAME_WORDS) -> set[View]:
    return {view for view in VIEWS if len(set(classify([a, b], view, meaning))) > 1}


def test_equal_answers_are_equal_in_all_views() -> None:
    assert differing(BASE, replace(BASE, run=1)) == set()


def test_a_log_probability_off_in_the_last_digits_is_no_other_text() -> None:
    other = replace(BASE, logprobs=(-0.5, -0.25 + 1e-6, -0.125), body="sha256:b")
    assert differing(BASE, other) == {"body", "logprobs"}
    assert differing(BASE, replace(BASE, logprobs=(-0.5, -0.25, -0.12500000000000003))) == {"logprobs"}


def test_a_body_that_differs_alone() -> None:
    assert differing(BASE, replace(BASE, body="sha256:c")) == {"body"}


def test_other_tokens_for_the_same_text() -> None:
    assert differing(BASE, replace(BASE, token_ids=(1, 4, 3))) == {"token_ids"}


def test_json_with_other_order_of_keys() -> None:
    other = replace(BASE, text='{"age": 31, "name": "Ann"}', token_ids=(3, 2, 1), body="sha256:d")
    found = differing(BASE, other)
    assert {"text", "token_ids", "body"} <= found
    assert not {"parsed", "answer"} & found


def test_a_paraphrase_is_another_text_with_the_same_meaning() -> None:
    one = replace(BASE, text="The capital of France is Paris.", parsed=None, answer="Paris")
    other = replace(one, text="Paris is the capital of France.")
    assert "text" in differing(one, other)
    assert "semantic" in differing(one, other)  # the plain measure is a lower bound, and says so
    assert "another meaning" in SAME_WORDS.description
    assert "semantic" not in differing(one, other, word_overlap(0.8))
    assert "semantic" not in differing(one, replace(one, text="the capital of france is  paris"))


@pytest.mark.parametrize("meaning", [SAME_WORDS, word_overlap(0.5), word_overlap(0)], ids=lambda m: m.name)
def test_one_digit_fails_every_view_of_the_content(meaning: Meaning) -> None:
    other = replace(
        BASE,
        text='{"name": "Ann", "age": 37}',
        token_ids=(1, 2, 7),
        logprobs=(-0.5, -0.25, -1.0),
        parsed='{"age":37,"name":"Ann"}',
        answer="37",
        body="sha256:e",
    )
    assert differing(BASE, other, meaning) == EXACT | {"semantic"}


def test_negative_control_a_measure_that_ignores_numbers_misses_the_digit() -> None:
    careless = Meaning(
        "careless", "words without digits", key=lambda text: tuple(w for w in words(text) if w.isalpha())
    )
    assert "semantic" not in differing(BASE, replace(BASE, text='{"name": "Ann", "age": 37}'), careless)


def test_minus_zero_is_another_number_and_nan_is_itself() -> None:
    assert differing(replace(BASE, logprobs=(0.0, 0.0, 0.0)), replace(BASE, logprobs=(0.0, -0.0, 0.0))) == {"logprobs"}
    nan = float("nan")
    assert differing(replace(BASE, logprobs=(nan, 0.0, 0.0)), replace(BASE, logprobs=(-nan, 0.0, 0.0))) == set()


def test_failed_runs_and_missing_values_have_codes_of_their_own() -> None:
    failed = Observation(target="t", prompt_id="p", run=1, error="timeout")
    runs = [BASE, failed, replace(BASE, logprobs=None), failed]
    assert list(classify(runs, "text")) == [0, FAILED, 0, FAILED]
    assert list(classify(runs, "logprobs")) == [0, FAILED, WITHOUT, FAILED]


def test_classes_count_in_order_of_appearance() -> None:
    runs = [replace(BASE, text=text) for text in ("b", "a", "b", "B", "c")]
    assert list(classify(runs, "text")) == [0, 1, 0, 2, 3]
    assert list(classify(runs, "semantic")) == [0, 1, 0, 0, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,000 at 2.50, not −3", ("1000", "2.5", "-3")),
        ("007 and 0.0", ("7", "0")),
        ("1,23 or 1234,567", ("1", "23", "1234", "567")),
        ("v2.0.1", ("2", "1")),
        ("٣٤ x５", ("34", "5")),
        ("12\u202f345.6", ("12345.6",)),
        ("none", ()),
    ],
)
def test_numbers_of_a_text(text: str, expected: tuple[str, ...]) -> None:
    assert numbers(text) == expected


@pytest.mark.parametrize(
    ("a", "b"),
    [("x", "!x"), ("a + b", "a - b"), ("✅", "❌"), ("5 %", "5"), ("yes", "no"), ("2*3", "2 3"), ("3", "-3")],
)
def test_symbols_carry_meaning(a: str, b: str) -> None:
    assert SAME_WORDS.key(a) != SAME_WORDS.key(b)


def test_marks_and_case_do_not() -> None:
    assert words("“Yes”, it’s  TRUE!") == words("yes it's true")
