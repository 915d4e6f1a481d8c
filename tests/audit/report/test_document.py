"""The result document: read back as what was written, and nothing else is taken for one."""

from __future__ import annotations

import json
from copy import deepcopy
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
    raw = deepcopy(json.loads(flaky_text()))
    *way, last = path.split(".")
    place = raw
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
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
