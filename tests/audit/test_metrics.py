"""Agreement, TAR, flips and accuracy by hand; failures are never agreement."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from samebits.audit.agreement import agreement, summarise
from samebits.audit.intervals import unseen_departures
from samebits.audit.metrics import fingerprints, in_words, measure
from samebits.audit.observation import Evidence, Observation, as_condition
from samebits.audit.result import evaluate, verdict
from samebits.errors import InputError, MeasurementError


def runs(prompt_id: str, *texts: str | None, **fields: object) -> list[Observation]:
    """One run for each text; None is a failed one."""
    base = {"target": "t", "prompt_id": prompt_id, **fields}
    return [
        Observation(run=i, text=text, error="timeout" if text is None else None, **base)  # type: ignore[arg-type]
        for i, text in enumerate(texts)
    ]


def answers(prompt_id: str, *labels: str | None, expected: str = "A") -> list[Observation]:
    return [
        replace(o, answer=label, correct=label == expected)
        for o, label in zip(runs(prompt_id, *("text" for _ in labels)), labels, strict=True)
    ]


def test_a_mean_is_not_below_what_all_prompts_have() -> None:
    """One of 20 runs departs: 171 of 190 pairs are equal. Doubles would make 18 of these 0.8999999999999999."""
    found = [o for p in range(18) for o in runs(f"p{p}", *["a"] * 19, "b")]
    assert evaluate(found).repeat_rate == 0.9
    assert np.mean([0.9] * 18) < 0.9  # negative control


def test_a_sentence_about_two_views_is_said_once() -> None:
    found = [
        replace(o, condition=as_condition({"concurrency": level}), logprobs=(-0.5,), token_ids=(1,))
        for level in ("1", "4")
        for o in runs("p", "a", "a", "a")
    ]
    said = verdict(evaluate(found))
    assert len([sentence for sentence in said if "concurrency" in sentence]) == 1
    assert len(evaluate(found).attributions) == 2  # negative control: both views have it


def test_counts_of_one_prompt() -> None:
    found = agreement(runs("p", "a", "a", "a", "b", "c"), "text")
    assert (found.compared, found.unique, found.modal, found.departures, found.equal_pairs) == (5, 3, 3, 2, 3)
    assert found.modal_share == Fraction(6, 10)
    assert found.repeat_rate == found.repeat_rate_answered == Fraction(3, 10)
    assert not found.total


def test_a_failed_run_repeats_nothing() -> None:
    found = agreement(runs("p", "a", "a", None, None), "text")
    assert found.unique == 1
    assert found.repeat_rate_answered == 1.0
    assert found.repeat_rate == Fraction(1, 6)
    assert not found.total


def test_runs_that_all_failed_do_not_agree() -> None:
    summary = summarise([*runs("p", None, None, None), *runs("q", "a", "a", "a")], "text")
    assert summary.total_agreement.value == 0.5
    assert summary.repeat.value == 0.5
    alone = summarise(runs("p", None, None), "text")
    assert alone.total_agreement.value in (None, 0.0)
    assert alone.verdict == "not offered"
    found = measure([*runs("p", None, None, None), *answers("q", "A", "A", "A")])
    assert found.view("answer").total_agreement.value == 0.5
    assert found.failures.value == 0.5
    assert found.errors == (("timeout", 3),)


def test_answers_that_could_not_be_read_do_not_agree() -> None:
    """Three texts without an answer are no agreement on the answer None."""
    summary = summarise([*answers("p", None, None, None), *answers("q", "A", "A", "A")], "answer")
    assert [a.total for a in summary.prompts] == [False, True]
    assert summary.prompts[0].unique == 3
    assert summary.prompts[0].equal_pairs == 0
    assert summary.verdict == "unreadable"
    assert summary.total_agreement.value == 0.5
    one_missing = agreement(answers("p", "A", "A", None), "answer")
    assert (one_missing.unique, one_missing.modal, one_missing.equal_pairs) == (2, 2, 1)


def test_tar_of_text_and_of_answers_differ() -> None:
    data = [
        replace(o, text=text, answer="A", correct=True)
        for o, text in zip(runs("p", "", ""), ("I say A", "A, I say"), strict=True)
    ]
    found = measure(data)
    assert found.view("text").total_agreement.value == 0.0
    assert found.view("answer").total_agreement.value == 1.0


def test_a_prompt_without_a_label_does_not_count_for_answers() -> None:
    summary = summarise([*runs("p", "x", "y"), *answers("q", "A", "A")], "answer")
    assert [a.prompt_id for a in summary.prompts] == ["q"]


def test_equal_everywhere_states_what_is_excluded() -> None:
    data = [o for p in "abcdefgh" for o in runs(p, *["same"] * 25)]
    summary = summarise(data, "text")
    assert summary.verdict == "equal"
    assert summary.excluded == unseen_departures([25] * 8) == pytest.approx(3 / 200, rel=0.01)
    assert summary.repeat.value == 1.0
    assert summary.repeat.interval is not None
    assert summary.repeat.interval.low == pytest.approx((1 - summary.excluded) ** 2)
    assert "1.50%" in in_words(summary)
    assert "deterministic" not in in_words(summary)


def test_negative_control_one_departure_in_two_hundred_runs_is_seen() -> None:
    data = [o for p in "abcdefgh" for o in runs(p, *["same"] * 25)]
    data[77] = replace(data[77], text="Same")
    summary = summarise(data, "text")
    assert summary.verdict == "different"
    assert summary.departures == 1
    assert summary.departure_rate.value == 0.005
    assert summary.excluded is None
    assert "1 of 8 prompts" in in_words(summary)
    assert "1 of 200 runs" in in_words(summary)
    assert summarise(data, "semantic").verdict == "equal"


def test_five_runs_never_look_safe() -> None:
    found = measure(runs("p", *["same"] * 5))
    assert found.smallest_rate is None
    assert found.view("text").excluded == 0.5


def test_what_could_not_be_read_is_said_where_texts_are_equal() -> None:
    found = measure([*answers("p", None, None, None), *answers("q", "A", "A", "A")])
    assert found.view("text").verdict == "equal"
    assert found.view("answer").verdict == "unreadable"
    assert "Nothing could be read out of 3 of 6 answers" in in_words(found.view("answer"))
    assert "could be read" not in in_words(measure(answers("q", "A", "B")).view("answer"))


@pytest.mark.parametrize(
    ("labels", "verdict"),
    [
        (("A", "A"), "equal"),
        (("A", "B"), "different"),
        (("A", None), "different"),  # what reads the answer meets two things
        ((None, None), "unreadable"),
        ((None,), "unreadable"),
        (("A",), "too few runs"),
    ],
)
def test_what_could_not_be_read_is_neither_equal_nor_different(labels: tuple[str | None, ...], verdict: str) -> None:
    found = summarise(answers("p", *labels), "answer")
    assert found.verdict == verdict
    assert ("Nothing could be read" in in_words(found)) == (None in labels)
    beside = summarise([*answers("p", *labels), *answers("q", "C", "D")], "answer")
    assert beside.verdict == "different", "a difference that was seen is said first"


def test_a_view_that_is_not_offered_says_so() -> None:
    found = measure(runs("p", "a", "a"))
    assert found.view("logprobs").verdict == "not offered"
    assert "nothing is known" in in_words(found.view("logprobs"))
    assert measure(runs("p", "a")).view("text").verdict == "too few runs"


def test_a_value_that_some_runs_lack_is_no_total_agreement() -> None:
    data = [replace(o, token_ids=(1,)) for o in runs("p", "a", "a", "a")]
    data[1] = replace(data[1], token_ids=None)
    found = agreement(data, "token_ids")
    assert (found.compared, found.without, found.unique, found.total) == (2, 1, 1, False)


def test_unseeded_runs_are_left_out_and_counted() -> None:
    data = runs("p", "a", "a", condition=as_condition({"seed": "fixed"}))
    data += runs("p", "x", "y", "z", condition=as_condition({"seed": "none"}))
    found = measure(data)
    assert (found.runs, found.unseeded) == (2, 3)
    assert found.view("text").verdict == "equal"


def test_flips_and_accuracy_by_hand() -> None:
    data = [*answers("p", "A", "A", "B"), *answers("q", "A", None, "A"), *answers("r", "B", "B", "B")]
    found = measure(data).accuracy
    assert found is not None
    assert [(i.flips, i.correct, i.undecided) for i in found.items] == [(1, 2, True), (1, 2, True), (0, 0, False)]
    assert found.passes == (2 / 3, 1 / 3, 1 / 3)
    assert found.spread == pytest.approx(1 / 3)
    assert found.mean.value == pytest.approx(4 / 9)
    assert (found.best_possible, found.worst_possible) == (2 / 3, 0.0)
    assert measure(runs("p", "a", "a")).accuracy is None


def test_an_incomplete_pass_is_left_out_and_counted() -> None:
    found = measure([*answers("p", "A", "A", "A"), *answers("q", "A", "A")]).accuracy
    assert found is not None
    assert found.passes == (1.0, 1.0)
    assert found.incomplete == 1


def test_a_failed_run_is_not_correct() -> None:
    data = [*answers("p", "A", "A"), replace(runs("p", None)[0], run=2)]
    found = measure(data).accuracy
    assert found is not None
    assert found.passes == (1.0, 1.0, 0.0)
    assert found.items[0].flips == 1


def test_fingerprints_and_whether_they_stand_for_equal_answers() -> None:
    data = [
        *runs("p", "a", "a", fingerprint="one"),
        *runs("p", "b", fingerprint="two"),
        *runs("q", "c", "d", "d", fingerprint="two"),
        *runs("q", "e"),
    ]
    found = {f.fingerprint: (f.runs, f.differing_prompts) for f in fingerprints(data)}
    assert found == {"two": (4, 1), "one": (2, 0), None: (1, 0)}
    assert [f.fingerprint for f in fingerprints(data)] == ["two", "one", None]


def test_equal_observations_give_equal_metrics() -> None:
    data = [o for i in range(9) for o in runs(f"p{i}", *("a" * (20 - i)), *("b" * i))]
    assert measure(data) == measure(data)
    assert measure(data).views == measure(data[::-1]).views
    assert measure(data).views != measure([*data, *runs("p8", "c")]).views


def test_one_target_at_a_time() -> None:
    with pytest.raises(InputError, match="one target"):
        measure([*runs("p", "a"), *runs("p", "a", target="u")])
    with pytest.raises(InputError, match="no run"):
        measure(runs("p", "a", condition=as_condition({"seed": "none"})))


def test_means_over_prompts_are_as_sure_as_their_rarest_prompt() -> None:
    """Nine prompts with a thousand runs say nothing about a tenth one with two."""
    even = summarise([o for i in range(10) for o in runs(f"p{i}", "a", "a")], "text")
    many = [o for i in range(9) for o in runs(f"p{i}", *["a"] * 300)]
    uneven = summarise([*many, *runs("q", "a", "a")], "text")
    assert even.modal_share.interval == uneven.modal_share.interval
    assert even.repeat.interval == uneven.repeat.interval
    assert even.repeat.interval is not None
    assert even.excluded is not None
    assert uneven.excluded is not None
    assert uneven.excluded < even.excluded, "of runs, many show more"
    # Not excluded by two runs of one prompt: it departs in half of its runs, so that the mean share is 0.95.
    assert uneven.modal_share.interval is not None
    assert uneven.modal_share.interval.low < 0.95
    alone = summarise([*many, *runs("q", "a")], "text")
    assert alone.modal_share.interval is None


def test_empty_and_cut_answers_are_counted_and_said() -> None:
    data = [*runs("p", "", "", ""), *runs("q", "a", "a", finish_reason="length"), *runs("q2", None)]
    result = evaluate(data)
    assert (result.metrics.empty, result.metrics.cut) == (3, 2)
    said = " ".join(verdict(result))
    assert "3 of 5 answers are without text" in said
    assert "2 of 5 answers were cut" in said
    whole = " ".join(verdict(evaluate(runs("q", "a", "a", finish_reason="stop"))))
    assert "without text" not in whole
    assert "cut at" not in whole


def test_nothing_but_empty_answers_is_not_measured() -> None:
    with pytest.raises(MeasurementError, match="not one of 2 answers has any text"):
        evaluate(runs("p", "", "", None))


@pytest.mark.parametrize(("in_flight", "said"), [(2, True), (8, False)])
def test_a_level_that_was_not_reached_is_said(in_flight: int, said: bool) -> None:
    """That another level was reached says nothing about it."""
    data = [
        o
        for level, reached in (("1", 1), ("2", 2), ("8", in_flight))
        for o in runs(
            "p", "a", "a", condition=as_condition({"concurrency": level}), evidence=Evidence(in_flight=reached)
        )
    ]
    assert ("Not reached, so that nothing is known about it: concurrency 8." in verdict(evaluate(data))) is said
