"""The result document: read back as what was written, and nothing else is taken for one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import TEXTS, flaky_text, observations_of, prompts_of, raw_document

from samebits.audit.plain import plain
from samebits.audit.report.document import parse_document, read_result
from samebits.audit.result import evaluate
from samebits.audit.stub import Fault
from samebits.errors import InputError


@pytest.mark.parametrize("name", ["flaky", "several", "hostile"])
def test_a_document_is_read_back_as_it_was_written(name: str) -> None:
    raw = json.loads(TEXTS[name]())
    again = json.loads(json.dumps(plain(parse_document(raw))))
    assert again == raw


def test_what_was_evaluated_is_what_is_read() -> None:
    observations = observations_of("flaky", Fault(cause="load", rate=0.2))
    result = evaluate(observations, prompts_of(observations))
    [target] = parse_document(raw_document([observations])).targets
    assert target.metrics == result.metrics
    assert target.attributions == result.attributions
    assert target.exhibits == result.exhibits
    assert target.seeds == result.seeds


def changed(path: str, value: Any) -> Any:
    """The flaky document with one value replaced; ``...`` removes it."""
    raw = json.loads(flaky_text())
    *way, last = path.split(".")
    place = raw
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    key = int(last) if isinstance(place, list) else last
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("audit", 2, "format"),
        ("audit", ..., "format"),
        ("command", ..., "command"),
        ("targets.0.metrics.views", "x", "views"),
        ("targets.0.metrics.runs", "many", "metrics.runs"),
        ("targets.0.exhibits", ..., "exhibits"),
        ("targets.0.seeds.forwarding", "maybe", "forwarding"),
        ("targets.0.metrics.scores", {"p": {}}, "scores.p"),
        ("targets.0.exhibits.runs.rows", {}, "exhibits.runs"),
        ("targets.0.exhibits.runs.rows", {"p": [0]}, "exhibits.runs"),
        ("targets.0.exhibits.runs.conditions", [], "exhibits.runs"),
        ("targets.0.metrics.views", [], "views are not body"),
        ("targets", [], "targets is empty"),
        ("plan.experiment.runs", 1, "runs"),
        ("plan.experiment.temperature", "hot", "temperature"),
    ],
)
def test_what_is_no_document_is_refused_by_name(path: str, value: Any, named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        parse_document(changed(path, value))
    assert caught.value.field == "result"
    assert "samebits audit --json" in caught.value.remedy


@pytest.mark.parametrize("value", [[], None, 1, "x", {}])
def test_other_json_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="no result of samebits audit"):
        parse_document(value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"\xff{")
    for path in (tmp_path / "none.json", tmp_path, broken):
        with pytest.raises(InputError, match="cannot be read"):
            read_result(path)
    good = tmp_path / "good.json"
    good.write_text(flaky_text(), "utf-8")
    assert read_result(good) == json.loads(flaky_text())


# ---- numbers ---------------------------------------------------------------------------------------------------------

# What a target tells may be anything, and distances between such numbers may be what JSON has no number for.
ANYTHING = ("spread", "mean_difference", "kl", "logprob", "offered")
SIGNED = ("kl", "logprob", "offered", "seed", "shuffle", "rows")  # -1 is a failed run in a row


def numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The way to each number of a document."""
    if isinstance(value, dict | list):
        for name, x in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(x, (*path, str(name)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def kinds_of_numbers() -> dict[str, str]:
    """Each kind of number once: the fields on the way to it → the way to the first one."""
    found: dict[str, str] = {}
    for path in numbers(json.loads(flaky_text())):
        kind = ".".join(step for step in path if not step.isdecimal() and step not in PROMPT_IDS)
        found.setdefault(kind, ".".join(path))
    return found


PROMPT_IDS = frozenset(json.loads(flaky_text())["plan"]["prompt_ids"])
KINDS = kinds_of_numbers()


def is_taken(kind: str, value: Any) -> bool:
    said = ""
    try:
        parse_document(changed(KINDS[kind], value))
    except InputError as error:
        said = str(error)
    # The field, or what holds it, is named.
    assert not said or any(step in said for step in kind.split(".")[-3:]), (kind, value, said)
    return not said


def test_no_number_of_a_result_may_be_none() -> None:
    assert len(KINDS) > 80, "the control"
    for kind in KINDS:
        free = kind.rpartition(".")[2] in ANYTHING
        for value in ("NaN", math.nan, "Infinity", math.inf):
            assert is_taken(kind, value) == free, (kind, value)


def test_no_number_of_a_result_may_be_out_of_its_range() -> None:
    whole = {kind for kind in KINDS if isinstance(at(KINDS[kind]), int)}
    assert 30 < len(whole) < len(KINDS), "the control"
    for kind in KINDS:
        assert is_taken(kind, -1) == (kind.rpartition(".")[2] in SIGNED), kind
        if kind in whole - {"plan.experiment.shuffle"}:
            assert not is_taken(kind, 10**30), kind
            assert not is_taken(kind, 1.5), kind


def at(path: str) -> Any:
    place = json.loads(flaky_text())
    for step in path.split("."):
        place = place[int(step) if isinstance(place, list) else step]
    return place


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("targets.0.repeat_rate", 0.99, "repeat_rate 0.99 is not that of the metrics"),
        ("targets.0.repeat_rate", "0.9", "repeat_rate"),
        ("fail_under", 1.01, "fail_under"),
        ("targets.0.metrics.failures.value", 1.01, "failures"),
        ("targets.0.metrics.failures.interval.high", 1.01, "failures"),
        ("targets.0.metrics.failures.interval.low", 0.9, "low 0.9 is above"),
        ("targets.0.metrics.views.1.repeat.value", 1.01, "views.1.repeat"),
        ("targets.0.attributions.0.factors.0.levels.0.interval.high", 1.01, "levels.0.interval"),
        ("targets.0.attributions.0.factors.0.levels.0.departures", 10**6, "departures 1000000"),
        ("targets.0.attributions.0.factors.0.levels.0.runs", 0, "of runs 0"),
    ],
)
def test_a_share_lies_between_0_and_1(path: str, value: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        parse_document(changed(path, value))
    parse_document(changed(path, at(path)))  # the control


def test_a_file_with_a_number_that_is_none_writes_no_report(tmp_path: Path) -> None:
    for word in ("NaN", "Infinity", "1e999"):
        raw = changed("targets.0.metrics.confidence", 0.123456789)
        (tmp_path / "r.json").write_text(json.dumps(raw).replace("0.123456789", word), "utf-8")
        with pytest.raises(InputError, match=r"metrics\.confidence") as caught:
            read_result(tmp_path / "r.json")
        assert caught.value.field == "result"
