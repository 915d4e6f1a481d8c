"""What a report shows: the earliest parting is the earliest of all pairs, and equal classes are equal texts."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from samebits.audit.divergence import common_prefix, divergence
from samebits.audit.exhibits import ABSENT, MOST_PARTINGS, Exhibits, exhibit
from samebits.audit.observation import Observation, as_condition
from samebits.audit.prompts import Prompt
from samebits.audit.views import FAILED

TOKENS = ("a", " b", "c")


def run(
    number: int, tokens: tuple[str, ...] | None, *, scores: tuple[float, ...] | None = None, **others: object
) -> Observation:
    levels = others.pop("levels", {})
    values: dict[str, object] = {"target": "t", "prompt_id": "p", "run": number, **others}
    condition = as_condition(levels)  # type: ignore[arg-type]
    if tokens is None:
        return Observation(condition=condition, error="gone", **values)  # type: ignore[arg-type]
    ids = tuple(TOKENS.index(t) for t in tokens)
    return Observation(
        condition=condition, text="".join(tokens), tokens=tokens, token_ids=ids, logprobs=scores, **values  # type: ignore[arg-type]
    )  # fmt: skip


def shown(observations: list[Observation]) -> Exhibits:
    return exhibit(observations, (), "text")


ANSWERS = st.lists(st.none() | st.lists(st.sampled_from(TOKENS), max_size=4).map(tuple), min_size=1, max_size=8)


@given(ANSWERS)
def test_no_two_answers_part_earlier(answers: list[tuple[str, ...] | None]) -> None:
    runs = [run(i, tokens) for i, tokens in enumerate(answers)]
    found = shown(runs).partings
    given_ = [tokens for tokens in answers if tokens is not None]
    if len(set(given_)) < 2:
        assert found == ()
        return
    [parting] = found
    assert parting.place == min(common_prefix(a, b) for a, b in itertools.combinations(set(given_), 2))
    assert parting.place == divergence(runs).first
    one, other = parting.sides
    assert one.runs == max(Counter(given_).values())
    texts = {"".join(tokens) for tokens in given_}
    assert {parting.common + side.rest for side in parting.sides} <= texts
    assert one.token != other.token
    assert (one.token is None) == (not one.rest)


@given(ANSWERS)
def test_equal_classes_are_equal_texts(answers: list[tuple[str, ...] | None]) -> None:
    runs = [run(i, tokens) for i, tokens in enumerate(answers)]
    found = shown(runs).runs
    row = found.rows["p"]
    assert found.columns == tuple((0, i) for i in range(len(runs)))
    for (a, x), (b, y) in itertools.product(zip(runs, row, strict=True), repeat=2):
        assert (x == y) == (a.text == b.text)
    assert all((code == FAILED) == o.failed for o, code in zip(runs, row, strict=True))
    counts = Counter(code for code in row if code >= 0)
    assert all(counts[code] >= counts[code + 1] for code in range(len(counts)))


def test_columns_are_sorted_by_the_value_of_levels_and_gaps_are_marked() -> None:
    runs = [
        run(0, ("a",), levels={"concurrency": level, "load": load})
        for level, load in itertools.product(("32", "8", "1"), ("on", "off"))
    ]
    runs.append(replace(runs[0], prompt_id="q"))
    found = shown(runs).runs
    seen = [(dict(c)["concurrency"], dict(c)["load"]) for c in found.conditions]
    assert seen == [("1", "off"), ("1", "on"), ("8", "off"), ("8", "on"), ("32", "off"), ("32", "on")]
    assert found.rows["q"] == (ABSENT,) * 5 + (0,)


def test_the_two_tokens_come_with_what_the_target_tells() -> None:
    best = ((("a", -0.1), ("c", -2.0)),) * 2
    runs = [
        run(0, ("a", "a"), scores=(-0.1, -0.2)),
        run(1, ("a", "a"), scores=(-0.1, -0.2)),
        replace(run(2, ("a", "c"), scores=(-0.1, -2.0)), top_logprobs=best),
    ]
    prompt = Prompt(id="p", messages=({"role": "user", "content": "Say"},))
    [parting] = exhibit(runs, (prompt,), "text").partings
    assert (parting.place, parting.common, parting.unit) == (1, "a", "token ids")
    assert parting.messages == prompt.messages
    one, other = parting.sides
    assert one.token is not None
    assert other.token is not None
    assert (one.token.text, one.token.id, one.token.logprob, one.offered) == ("a", 0, -0.2, ())
    assert (other.token.text, other.token.id, other.token.logprob, other.offered) == ("c", 2, -2.0, best[1])


def test_texts_alone_part_by_characters() -> None:
    runs = [Observation(target="t", prompt_id="p", run=i, text=text) for i, text in enumerate(("river", "rival"))]
    [parting] = shown(runs).partings
    assert (parting.unit, parting.place, parting.common) == ("characters", 3, "riv")
    assert [side.rest for side in parting.sides] == ["er", "al"]
    assert [side.token for side in parting.sides] == [None, None]


def test_bits_part_where_texts_do_not() -> None:
    runs = [run(0, ("a", "c"), scores=(-0.5, 0.0)), run(1, ("a", "c"), scores=(-0.5, -0.0))]
    assert exhibit(runs, (), "text").partings == ()
    [parting] = exhibit(runs, (), "logprobs").partings
    assert (parting.view, parting.place) == ("logprobs", 1)
    assert [repr(side.token.logprob) for side in parting.sides if side.token] == ["0.0", "-0.0"]


def test_runs_that_may_vary_are_left_out() -> None:
    runs = [run(0, ("a",)), run(1, ("a",)), run(0, ("c",), levels={"seed": "none"})]
    found = shown(runs)
    assert found.partings == ()
    assert found.runs.rows == {"p": (0, 0)}
    control = shown([*runs[:2], run(2, ("c",))])
    assert len(control.partings) == 1


def test_the_earliest_partings_are_kept_and_the_others_counted() -> None:
    runs = []
    for number in range(MOST_PARTINGS + 3):
        start = ("a",) * (number % 7)
        runs += [run(i, (*start, t), prompt_id=f"p{number:02}") for i, t in enumerate(("a", "c"))]
    found = shown(runs)
    places = [p.place for p in found.partings]
    assert len(places) == MOST_PARTINGS
    assert places == sorted(places)
    assert found.partings_left_out == 3
    assert max(places) <= 6


def test_different_texts_are_counted_by_concurrency() -> None:
    runs = [run(i, ("a",), levels={"concurrency": "1"}) for i in range(4)]
    runs += [run(i, (t,), levels={"concurrency": "16"}) for i, t in enumerate(("a", "c", " b", "a"))]
    low, high = shown(runs).unique_by_concurrency
    assert (low.level, low.mean, low.most, low.runs) == ("1", 1.0, 1, 4)
    assert (high.level, high.mean, high.most, high.runs) == ("16", 3.0, 3, 4)
    assert shown([run(0, ("a",))]).unique_by_concurrency == ()
