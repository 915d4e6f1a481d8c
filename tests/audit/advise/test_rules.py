"""Advice: one for every combination of answers, each with a configuration that its command takes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from samebits.api.config import make_config
from samebits.audit.advise import QUESTIONS, RULES, Needs, advise, read_needs
from samebits.audit.targets import read_targets
from samebits.engine import SamplingParams
from samebits.errors import InputError


def everything() -> list[Needs]:
    combinations = itertools.product(*(answers for _, answers in QUESTIONS.values()))
    return [Needs(**dict(zip(QUESTIONS, answers, strict=True))) for answers in combinations]  # type: ignore[arg-type]


def test_every_combination_has_exactly_one_rule_and_every_rule_a_combination() -> None:
    found = [[rule.name for rule in RULES if rule.holds(needs)] for needs in everything()]
    assert len(found) == 5 * 3 * 2 * 3 * 2
    assert {len(names) for names in found} == {1}
    assert {name for [name] in found} == {rule.name for rule in RULES}
    assert all(set(answers) <= set(QUESTIONS[question][1]) for rule in RULES for question, answers in rule.when.items())


def test_negative_control_a_gap_and_an_overlap_are_seen() -> None:
    for kept in (RULES[1:], (*RULES, RULES[0])):
        counts = {sum(rule.holds(needs) for rule in kept) for needs in everything()}
        assert counts != {1}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_configuration_is_taken_by_its_command(rule: object, tmp_path: Path) -> None:
    needs = next(needs for needs in everything() if advise(needs).rule is rule)
    advice = advise(needs)
    if advice.rule.serve is not None:
        config = make_config(yaml.safe_load(advice.config))
        assert advice.rule.level == config.determinism == "portable"
        assert config.models["model"].profile == advice.rule.model["profile"]
        assert "--config" in advice.command
    else:
        (tmp_path / advice.file).write_text(advice.config)
        assert read_targets(str(tmp_path / advice.file))
        assert advice.rule.level != "portable", "only our own engine can promise that"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_to_send_fits_the_need(rule: object) -> None:
    for needs in everything():
        advice = advise(needs)
        if advice.rule is not rule:
            continue
        sampled = advice.rule.request["temperature"] > 0
        if needs.regulation == "audited" and needs.budget == "hosted":
            assert not sampled
        else:
            assert sampled == (needs.creativity == "some")
        plain = {name: value for name, value in advice.rule.request.items() if name != "seed"}
        SamplingParams.from_mapping(plain)


def write(folder: Path, text: str) -> Path:
    path = folder / "needs.yaml"
    path.write_text(text)
    return path


GOOD = "use_case: evaluation\nregulation: internal\nlatency: batch\nbudget: cpu\ncreativity: none\n"


def test_answers_are_read(tmp_path: Path) -> None:
    needs = read_needs(write(tmp_path, GOOD))
    assert needs == Needs(
        use_case="evaluation", regulation="internal", latency="batch", budget="cpu", creativity="none"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "YAML"),
        ("", "each question"),
        (GOOD.replace("budget: cpu\n", ""), "each question"),
        (GOOD + "colour: red\n", "each question"),
        (GOOD.replace("cpu", "abacus"), "budget: 'abacus'"),
        (GOOD.replace("none", "[none]"), "creativity"),
    ],
)
def test_wrong_answers_are_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=r"needs|budget|creativity") as caught:
        read_needs(write(tmp_path, text))
    assert said in str(caught.value)
