"""What a report shows beside the measures: which answer each run got, and two answers side by side where they part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from samebits.audit.agreement import agreement
from samebits.audit.divergence import Unit, common_prefix, items_of, unit_of
from samebits.audit.observation import Condition, Observation, level_order
from samebits.audit.prompts import Prompt
from samebits.audit.ranges import MOST, Count, Nats, Positive
from samebits.audit.views import View, by_prompt, classify, key_of

ABSENT: Final = -2  # the class of a run that a prompt does not have; FAILED is -1
Class = Annotated[int, Field(strict=True, ge=ABSENT, le=MOST)]
MOST_PARTINGS: Final = 12
# Runs under one condition stand together; the first of these that differs decides the order.
ORDER: Final = ("concurrency", "load", "prefix", "streaming", "seed", "time", "order")


@dataclass(frozen=True)
class RunMap:
    """Which text each run got. A column is one run of every prompt under one condition.

    Attributes:
        conditions: all of them, in the order of the columns.
        columns: for each column the index of its condition, and the run.
        rows: prompt → for each column the class of the text: 0 the most common one of the prompt, 1 the next; FAILED,
            ABSENT.
    """

    conditions: tuple[Condition, ...]
    columns: tuple[tuple[Count, Count], ...]
    rows: Mapping[str, tuple[Class, ...]]


@dataclass(frozen=True)
class LevelUnique:
    """Different texts of a prompt at one level of concurrency.

    Attributes:
        level: requests in flight.
        runs: of the prompt with the fewest answered ones.
        mean, most: over prompts.
    """

    level: str
    runs: Count
    mean: Positive
    most: Count


@dataclass(frozen=True)
class Token:
    """A token of an answer as the target tells it; None is not told."""

    text: str | None
    id: Count | None
    logprob: Nats | None


@dataclass(frozen=True)
class Side:
    """One of two answers that part.

    Attributes:
        runs: that gave this answer.
        condition, run: of the first of them.
        rest: the answer's text from where it parts.
        token: the first differing one; None where the answer has ended, or no tokens are told.
        offered: the best tokens there with their log-probabilities, as far as told.
    """

    runs: Count
    condition: Condition
    run: Count
    rest: str
    token: Token | None
    offered: tuple[tuple[str, Nats], ...]


@dataclass(frozen=True)
class Parting:
    """The most common answer to a prompt, and the one that parts from it first. No two answers part earlier.

    Attributes:
        prompt_id: which prompt.
        messages: its conversation; empty where not known.
        view: ``text``, or ``logprobs`` where texts are equal and log-probabilities part.
        unit, place: the first differing place, from 0, and what is counted.
        common: the text up to there.
        sides: the two.
    """

    prompt_id: str
    messages: tuple[Mapping[str, str], ...]
    view: Literal["text", "logprobs"]
    unit: Unit
    place: Count
    common: str
    sides: tuple[Side, Side]


@dataclass(frozen=True)
class Exhibits:
    """What a report shows of a target beside its measures.

    Attributes:
        runs: which text each run got.
        unique_by_concurrency: by rising level; empty where the concurrency was not set.
        partings: the earliest one of each prompt, those that part earliest first, MOST_PARTINGS at most.
        partings_left_out: prompts with a parting that is not among these.
        began, ended: seconds since 1970; None where no times are known.
        retries: requests that were sent again.
    """

    runs: RunMap
    unique_by_concurrency: tuple[LevelUnique, ...]
    partings: tuple[Parting, ...]
    partings_left_out: Count
    began: Positive | None
    ended: Positive | None
    retries: Count


def exhibit(observations: Sequence[Observation], prompts: Sequence[Prompt], view: View) -> Exhibits:
    """What a report shows of one target.

    Args:
        observations: of one target; those to which no seed was sent are left out, as they may vary.
        prompts: for their conversations.
        view: in which answers part: ``text`` or ``logprobs``.
    """
    kept = [o for o in observations if o.level("seed") != "none"]
    grouped = by_prompt(kept)
    conversations = {prompt.id: prompt.messages for prompt in prompts}
    found = [_parting(runs, view, conversations.get(name, ())) for name, runs in grouped.items()]
    partings = sorted((p for p in found if p is not None), key=lambda p: p.place)
    times = [o.timing for o in observations if o.timing is not None]
    return Exhibits(
        runs=run_map(grouped),
        unique_by_concurrency=_unique_by_concurrency(kept),
        partings=tuple(partings[:MOST_PARTINGS]),
        partings_left_out=len(partings[MOST_PARTINGS:]),
        began=min((t.started for t in times), default=None),
        ended=max((t.started + t.total_s for t in times), default=None),
        retries=sum(o.attempts - 1 for o in observations),
    )


def run_map(grouped: Mapping[str, Sequence[Observation]]) -> RunMap:
    """Which text each run of each prompt got."""
    seen = {(o.condition, o.run) for runs in grouped.values() for o in runs}
    conditions = sorted({condition for condition, _ in seen}, key=place_of)
    index = {condition: i for i, condition in enumerate(conditions)}
    columns = sorted((index[condition], run) for condition, run in seen)
    rows = {}
    for prompt_id, runs in grouped.items():
        codes = classify(runs, "text").tolist()
        ranked = [code for code, _ in Counter(c for c in codes if c >= 0).most_common()]
        rank = {code: i for i, code in enumerate(ranked)}
        classes = {(index[o.condition], o.run): rank.get(c, c) for o, c in zip(runs, codes, strict=True)}
        rows[prompt_id] = tuple(classes.get(column, ABSENT) for column in columns)
    return RunMap(tuple(conditions), tuple(columns), rows)


def place_of(condition: Condition, order: Sequence[str] = ORDER) -> tuple[tuple[int, float, str], ...]:
    """A key that sorts conditions by the levels of these factors, then of all others; numbers by their value."""
    levels = dict(condition)
    names = [*order, *sorted(levels.keys() - set(order))]
    return tuple(level_order(levels.get(name, "")) for name in names)


def _unique_by_concurrency(observations: Sequence[Observation]) -> tuple[LevelUnique, ...]:
    levels: dict[str, list[Observation]] = {}
    for o in observations:
        level = o.level("concurrency")
        if level is not None:
            levels.setdefault(level, []).append(o)
    found = []
    for level in sorted(levels, key=level_order):
        prompts = [agreement(runs, "text") for runs in by_prompt(levels[level]).values()]
        counted = [p for p in prompts if p.compared]
        if counted:
            mean = sum(p.unique for p in counted) / len(counted)
            least = min(p.compared for p in counted)
            found.append(LevelUnique(level, least, mean, max(p.unique for p in counted)))
    return tuple(found)


# ---- where two answers part ------------------------------------------------------------------------------------------


def _parting(runs: Sequence[Observation], view: View, messages: tuple[Mapping[str, str], ...]) -> Parting | None:
    """The earliest parting of a prompt's runs; None where all are equal, or cannot be compared."""
    answered = [o for o in runs if o.text is not None and key_of(view, o) is not None]
    counts = Counter(key_of(view, o) for o in answered)
    if len(counts) < 2:
        return None
    first = {key_of(view, o): o for o in reversed(answered)}
    ranked = [(first[key], n) for key, n in counts.most_common()]
    unit = unit_of(answered)
    if view == "logprobs" and unit == "characters":
        return None
    (one, _), *others = ranked
    # Each item with its score, so that equal tokens with other bits part, too.
    own = _scored(one, unit, view)
    places = [common_prefix(own, _scored(other, unit, view)) for other, _ in others]
    place = min(places)
    other, count = others[places.index(place)]
    start = _text_start(one, other, place, unit)
    assert one.text is not None
    return Parting(
        prompt_id=one.prompt_id,
        messages=messages,
        view="text" if view == "text" else "logprobs",
        unit=unit,
        place=place,
        common=one.text[:start],
        sides=(_side(one, ranked[0][1], place, start, unit), _side(other, count, place, start, unit)),
    )


def _scored(observation: Observation, unit: Unit, view: View) -> Sequence[object]:
    items = items_of(observation, unit)
    if view == "text":
        return items
    assert observation.logprobs is not None
    # float.hex tells -0.0 from 0.0, and a NaN is itself.
    return [(item, score.hex()) for item, score in zip(items, observation.logprobs, strict=True)]


def _text_start(one: Observation, other: Observation, place: int, unit: Unit) -> int:
    """Characters of the common text: up to the differing token where the tokens make up the texts."""
    assert one.text is not None
    assert other.text is not None
    shared = common_prefix(one.text, other.text)
    if unit == "characters" or one.tokens is None or "".join(one.tokens) != one.text:
        return shared
    return min(shared, len("".join(one.tokens[:place])))


def _side(observation: Observation, runs: int, place: int, start: int, unit: Unit) -> Side:
    o = observation
    assert o.text is not None
    lengths = [len(values) for values in (o.token_ids, o.tokens) if values is not None]
    within = unit != "characters" and place < min(lengths, default=0)
    token = None
    if within:
        token = Token(
            None if o.tokens is None else o.tokens[place],
            None if o.token_ids is None else o.token_ids[place],
            None if o.logprobs is None else o.logprobs[place],
        )
    offered = o.top_logprobs[place] if within and o.top_logprobs is not None else ()
    return Side(runs, o.condition, o.run, o.text[start:], token, offered)
