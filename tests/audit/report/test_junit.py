"""JUnit XML: differences fail, what nothing is known about is skipped, and the gate is a case of its own."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from documents import HOSTILE, document, flaky_text, hostile_text, several_text

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
    for count, path in (("tests", ".//testcase"), ("failures", ".//failure"), ("skipped", ".//skipped")):
        assert root.get(count) == str(len(root.findall(path)))
        for suite in root:
            assert suite.get(count) == str(len(suite.findall(path)))
    assert int(root.get("failures", "0")) > 0


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
