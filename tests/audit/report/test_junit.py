"""JUnit XML: differences fail, what nothing is known about is skipped, and the gate is a case of its own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from documents import HOSTILE, TEXTS, document, flaky_text, hostile_text, several_text

from samebits.audit.report.document import Document
from samebits.audit.report.junit import to_junit
from samebits.audit.report.words import visible
from samebits.audit.views import VIEWS


def cases(found: Document) -> dict[str, dict[str, str]]:
    """Target → case → passed, failure or skipped."""
    root = ET.fromstring(to_junit(found))
    return {
        suite.get("name", ""): {
            case.get("name", ""): case[0].tag if len(case) else "passed" for case in suite.findall("testcase")
        }
        for suite in root.findall("testsuite")
    }


def test_each_target_and_view_is_a_case() -> None:
    found = cases(document(several_text()))
    assert list(found) == ["flaky", "steady", "bits"]
    for name, states in (
        ("flaky", {"body": "skipped", "text": "failure", "logprobs": "failure", "parsed": "skipped"}),
        ("steady", {"body": "skipped", "text": "passed", "logprobs": "passed", "answer": "passed"}),
        ("bits", {"text": "passed", "logprobs": "failure"}),
    ):
        assert {f"equal in {view}" for view in VIEWS} <= found[name].keys()
        assert {view: found[name][f"equal in {view}"] for view in states} == states


def test_the_gate_is_a_case_where_a_rate_was_demanded() -> None:
    [gated] = cases(document(flaky_text())).values()
    assert gated["exact-repeat rate of at least 1"] == "failure"
    [passing] = cases(document(hostile_text())).values()
    assert passing["exact-repeat rate of at least 0.5"] == "passed"
    assert not any("exact-repeat" in name for found in cases(document(several_text())).values() for name in found)


def test_the_counts_are_those_of_the_cases() -> None:
    root = ET.fromstring(to_junit(document(several_text())))
    for count, path in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
        for suite in root:
            assert suite.get(count) == str(len(suite.findall(path)))
    assert sum(int(suite.get("failures", "0")) for suite in root) > 0


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_it_keeps_to_the_schemas(text: Callable[[], str]) -> None:
    """What Ant's JUnit.xsd and the xUnit plugin's junit-10.xsd of Jenkins both take, written down from the two."""
    assert offences(ET.fromstring(to_junit(document(text())))) == []


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (".", lambda e: e.set("skipped", "1")),
        ("testsuite", lambda e: e.set("timestamp", "2026-11-30T10:00:00Z")),
        ("testsuite", lambda e: e.set("time", "1e-5")),
        ("testsuite", lambda e: e.attrib.pop("hostname")),
        ("testsuite", lambda e: e.remove(e.find("properties"))),
        ("testsuite", lambda e: e.insert(0, e[-1])),
        ("testsuite/testcase", lambda e: e.attrib.pop("classname")),
        (".//failure", lambda e: e.attrib.pop("type")),
        (".//skipped/..", lambda e: e.append(e[0])),
    ],
)
def test_negative_control_an_offence_is_seen(path: str, change: Callable[[Any], object]) -> None:
    root = ET.fromstring(to_junit(document(flaky_text())))
    place = root.find(path)
    assert place is not None
    change(place)
    assert offences(root) != []


@dataclass(frozen=True)
class Rule:
    """An element: children, and attributes with the pattern of their values."""

    children: str = ""
    required: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)


COUNT, SECONDS, ANY, NAME = r"\d+", r"\d+(\.\d+)?", r"(?s).*", r"(?s).+"
RULES = {
    "testsuites": Rule("(testsuite )*"),
    "testsuite": Rule(
        "properties (testcase )*system-out system-err ",
        {"name": NAME, "hostname": NAME, "package": ANY, "id": COUNT, "tests": COUNT, "failures": COUNT}
        | {"errors": COUNT, "time": SECONDS, "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"},
        {"skipped": COUNT},
    ),
    "properties": Rule("(property )*"),
    "property": Rule("", {"name": NAME, "value": ANY}),
    "testcase": Rule("((skipped|error|failure) )?", {"name": ANY, "classname": ANY, "time": SECONDS}),
    "skipped": Rule("", {}, {"message": ANY, "type": ANY}),
    "failure": Rule("", {"type": ANY}, {"message": ANY}),
    "error": Rule("", {"type": ANY}, {"message": ANY}),
    "system-out": Rule(),
    "system-err": Rule(),
}


def offences(element: ET.Element) -> list[str]:
    rule = RULES[element.tag]
    known = {**rule.required, **rule.optional}
    found = [f"{element.tag} lacks {name}" for name in rule.required if name not in element.attrib]
    found += [f"{element.tag} has {name}" for name in element.attrib if name not in known]
    found += [
        f"{element.tag}: {name} is {value!r}"
        for name, value in element.attrib.items()
        if not re.fullmatch(known.get(name, ANY), value)
    ]
    if not re.fullmatch(rule.children, "".join(f"{child.tag} " for child in element)):
        found.append(f"{element.tag} holds {[child.tag for child in element]}")
    return found + [offence for child in element for offence in offences(child)]


def test_a_factor_that_was_not_exercised_is_skipped_with_the_reason() -> None:
    found = document(several_text())
    names = {
        (target.name, f"{a.view} by {f.name}")
        for target in found.targets
        for a in target.attributions
        for f in a.factors
        if f.status == "not exercised"
    }
    skipped = {
        (t, name)
        for t, states in cases(found).items()
        for name, state in states.items()
        if " by " in name and state == "skipped"
    }
    assert skipped == names


def test_any_text_is_xml() -> None:
    root = ET.fromstring(to_junit(document(hostile_text())))
    assert visible(f"evil {HOSTILE}").replace("\n", " ") == (root[0].get("name") or "").replace("\n", " ")
