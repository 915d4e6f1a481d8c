"""The report as JUnit XML, for CI: one test case for each target and view, and one for the rate that was demanded.

It keeps to the schema of Ant's JUnit task and to that of Jenkins' xUnit plugin (junit-10), which differ.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from samebits.audit.agreement import ViewSummary
from samebits.audit.report.document import Document, TargetDocument
from samebits.audit.report.facts import passes
from samebits.audit.report.words import estimate, moment, share, visible
from samebits.counted import part

SUITE = "samebits audit"


def to_junit(document: Document) -> str:
    """The report. A view that differs fails; one that is not offered, unreadable, or had too few runs, is skipped; so
    is a factor that was not exercised.
    """
    root = ET.Element("testsuites")  # without attributes: there are none that all schemas know
    for number, target in enumerate(document.targets):
        _suite(root, number, target, document)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, number: int, target: TargetDocument, document: Document) -> None:
    began, ended = target.exhibits.began, target.exhibits.ended
    seconds = 0.0 if began is None or ended is None else max(0.0, ended - began)  # a clock may have been set back
    name = visible(target.name)
    # The schema of Ant wants a host, and this name for one that is not told; and all four parts of a suite, in order.
    suite = ET.SubElement(root, "testsuite", id=str(number), name=name, package=SUITE, hostname="localhost")
    suite.set("time", f"{seconds:.3f}")
    suite.set("timestamp", moment(document.created).removesuffix(" UTC").replace(" ", "T"))
    properties = ET.SubElement(suite, "properties")
    for key, value in (("exact-repeat rate", share(target.repeat_rate)), ("journal", document.journal)):
        ET.SubElement(properties, "property", name=key, value=visible(value))
    for view in target.metrics.views:
        _view(suite, target, view)
    for attribution in target.attributions:
        for factor in attribution.factors:
            if factor.status == "not exercised":
                case = _case(suite, target, f"{attribution.view} by {factor.name}")
                _skip(case, f"not exercised: {factor.exercise.why if factor.exercise else 'nothing shows it'}")
    if document.fail_under is not None:
        case = _case(suite, target, f"exact-repeat rate of at least {document.fail_under:g}")
        if not passes(target, document.fail_under):
            found = estimate(target.metrics.view("text").repeat)
            _fail(case, f"the exact-repeat rate is {found}, below {document.fail_under:g}", "fail-under", target)
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("errors", "0")
    ET.SubElement(suite, "system-out").text = visible("\n".join(target.verdict))
    ET.SubElement(suite, "system-err")


def _view(suite: ET.Element, target: TargetDocument, view: ViewSummary) -> None:
    case = _case(suite, target, f"equal in {view.view}")
    if view.verdict in ("not offered", "too few runs"):
        _skip(case, view.verdict)
    elif view.verdict == "unreadable":
        _skip(case, f"unreadable: nothing could be read out of {part(view.without, view.compared, 'answer')}")
    elif view.verdict == "different":
        differing = sum(p.outcomes > 1 for p in view.prompts)
        message = (
            f"{part(differing, len(view.prompts), 'prompt', 'differs', 'differ')}; "
            f"{part(view.departures, view.compared, 'run', 'departs', 'depart')}; "
            f"exact-repeat rate {share(view.repeat.value)}"
        )
        _fail(case, message, "different", target)


def _case(suite: ET.Element, target: TargetDocument, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=visible(f"{SUITE}.{target.name}"), name=visible(name), time="0")


def _skip(case: ET.Element, why: str) -> None:
    ET.SubElement(case, "skipped", message=visible(why))


def _fail(case: ET.Element, message: str, kind: str, target: TargetDocument) -> None:
    failure = ET.SubElement(case, "failure", message=visible(message), type=kind)
    failure.text = visible("\n".join(target.verdict))
