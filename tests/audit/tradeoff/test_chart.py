"""The chart shows what was measured, and the page needs nothing from elsewhere."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest

from samebits.audit.intervals import Estimate, Interval
from samebits.audit.targets import ModelSpec
from samebits.audit.tradeoff import PUBLISHED, Approach, Row, Size, Speed, Tradeoff
from samebits.audit.tradeoff.chart import cells, page, specification, svg
from samebits.errors import InputError


def approach(name: str) -> Approach:
    return Approach(name=name, what="a <b>", spec=ModelSpec(name=name, path="x"))


def rate(value: float) -> Estimate:
    return Estimate(value, Interval(value / 2, value, 0.95, "x"), 2, "prompts")


RESULT = Tradeoff(
    "m<1>",
    Size(),
    (
        Row(approach("default"), Speed(20, 100), rate(0.5), rate(0.25)),
        Row(approach("slow & sure"), Speed(10, 50), rate(1.0), rate(1.0)),
        Row(approach("absent"), reason="needs <torch>"),
    ),
)


def test_points_are_the_measured_rows() -> None:
    points = specification(RESULT)["data"]["values"]
    assert [(p["name"], p["speed"], p["repeat"]) for p in points] == [("default", 100, 0.5), ("slow & sure", 50, 1.0)]


def test_the_picture_is_svg_with_every_name() -> None:
    drawn = svg(RESULT)
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg")
    texts = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {"default", "slow & sure"} <= texts
    assert "absent" not in texts


def test_figures_stand_beside_their_ratio_to_the_default() -> None:
    assert cells(RESULT, RESULT.rows[1]) == ["10", "0.50", "50", "0.50", "100% (≥ 50%)", "100% (≥ 50%)"]
    assert cells(RESULT, RESULT.rows[2]) is None


def test_the_page_says_everything_and_loads_nothing() -> None:
    html = page(RESULT, {"processor": "P<Q>"})
    assert "not measured: needs &lt;torch&gt;" in html
    assert "P&lt;Q&gt;" in html
    assert "m&lt;1&gt;" in html
    for entry in PUBLISHED:
        assert entry.url in html
    loads = re.findall(r'(?:src|<link[^>]*href|url)\s*[=(]\s*"?(?!#)([^")\s]+)', html)
    assert loads == []


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(InputError, match=r"samebits\[report\]"):
        svg(RESULT)


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda e: e.url)
def test_published_figures_have_source_and_date(entry: object) -> None:
    source = entry.source  # type: ignore[attr-defined]
    assert re.search(r"\d{4}-\d{2}-\d{2}$", source)
    assert 0 < entry.relative < 1.1  # type: ignore[attr-defined]
