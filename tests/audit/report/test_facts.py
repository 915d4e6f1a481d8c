"""Facts that a report says in words."""

from __future__ import annotations

import json
from dataclasses import replace

from documents import document, flaky_text, several_text

from samebits.audit.report.document import parse_document
from samebits.audit.report.facts import accuracy_facts, known_facts
from samebits.audit.report.sections import contents


def test_items_whose_answers_flip_are_named_with_how_often() -> None:
    [target] = document(flaky_text()).targets
    accuracy = target.metrics.accuracy
    assert accuracy is not None
    said = dict(accuracy_facts(target))["runs whose answer flips or cannot be read, by item"]
    flipping = {item.prompt_id: f"{item.flips} of {item.runs}" for item in accuracy.items if item.flips}
    assert flipping
    assert dict(part.split(": ") for part in said.split("; ")) == flipping
    steady = document(several_text()).targets[1]
    assert dict(accuracy_facts(steady))["runs whose answer flips or cannot be read, by item"] == "none", "the control"


def test_what_was_found_of_a_target_is_named_in_words() -> None:
    raw = json.loads(flaky_text())
    raw["targets"][0]["known"] |= {"limit_name": "max_tokens", "first_questions": 3, "best_tokens": 2}
    raw["targets"][0]["notes"] = {"top_logprobs": "5 best tokens are refused by the target (no); 2 asked for"}
    [target] = parse_document(raw).targets
    said = dict(known_facts(target))
    assert said["name of the limit of tokens"] == "max_tokens"
    assert (said["probing requests"], said["best tokens, at most"]) == ("3", "2")
    assert said["note: top_logprobs"].endswith("2 asked for")
    assert said["model"] == raw["targets"][0]["known"]["model"], "the control: other names stay"


def test_without_two_runs_of_one_condition_nothing_is_known_of_the_rest() -> None:
    [target] = document(flaky_text()).targets
    attribution = target.attributions[0]
    assert attribution.within_pairs > 0, "the control"
    for pairs, said in (
        (attribution.within_pairs, "pairs of runs of one prompt"),
        (0, "No prompt was asked twice under"),
    ):
        changed = replace(target, attributions=(replace(attribution, within_pairs=pairs),))
        [section] = contents(replace(document(flaky_text()), targets=(changed,))).targets
        assert said in section.attributions[0].within
        assert "4,999 permutations" in section.attributions[0].within
