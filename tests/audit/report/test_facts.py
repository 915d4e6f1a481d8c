"""Facts that a report says in words."""

from __future__ import annotations

from documents import document, flaky_text, several_text

from samebits.audit.report.facts import accuracy_facts


def test_items_whose_answers_flip_are_named_with_how_often() -> None:
    [target] = document(flaky_text()).targets
    accuracy = target.metrics.accuracy
    assert accuracy is not None
    said = dict(accuracy_facts(target))["runs whose answer flips, by item"]
    flipping = {item.prompt_id: f"{item.flips} of {item.runs}" for item in accuracy.items if item.flips}
    assert flipping
    assert dict(part.split(": ") for part in said.split("; ")) == flipping
    steady = document(several_text()).targets[1]
    assert dict(accuracy_facts(steady))["runs whose answer flips, by item"] == "none", "the control"
