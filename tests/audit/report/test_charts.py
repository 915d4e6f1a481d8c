"""Plots hold the numbers of the document, cover every run, and never hide the rare one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from documents import HOSTILE, TEXTS, document, flaky_text, hostile_text, many_runs, raw_document, several_text

from samebits.audit.report import charts
from samebits.audit.report.charts import Chart
from samebits.audit.report.document import TargetDocument, parse_document
from samebits.audit.report.draw import draw
from samebits.audit.report.heat_map import MOST_CELLS, heat_map
from samebits.audit.report.words import visible
from samebits.audit.views import FAILED

KINDS = (charts.survival, charts.unique, heat_map, charts.spread)


def flaky() -> TargetDocument:
    return document(flaky_text()).targets[0]


def values(chart: Chart) -> list[dict[str, Any]]:
    assert chart.spec is not None
    found: list[dict[str, Any]] = chart.spec["data"]["values"]
    return found


@pytest.mark.parametrize("name", ["flaky", "several", "hostile"])
def test_every_plot_is_said_in_words_and_as_a_table(name: str) -> None:
    plotted = 0
    for target in document(TEXTS[name]()).targets:
        for kind in KINDS:
            chart = kind(target)
            assert chart.says.endswith(".")
            assert (chart.spec is None) == (not chart.rows)
            assert all(len(row) == len(chart.columns) for row in chart.rows)
            plotted += chart.spec is not None
    assert plotted >= 4


def test_survival_is_that_of_the_pairs() -> None:
    target = flaky()
    found = target.metrics.divergence
    means = [v for v in values(charts.survival(target)) if v["which"].startswith("mean")]
    assert [v["length"] for v in means] == sorted({v["length"] for v in means})
    assert means[0]["share"] == 1
    assert means[-1]["share"] < 1
    for v in means:
        assert v["share"] == pytest.approx(sum(d.survival(v["length"]) for d in found.values()) / len(found), abs=1e-12)
    lowest = [v["share"] for v in values(charts.survival(target)) if v["which"].startswith("lowest")]
    assert lowest[-1] == min(d.survival(10**6) for d in found.values())


def test_every_run_is_in_the_map_once() -> None:
    target = flaky()
    segments = values(heat_map(target))
    runs = target.exhibits.runs
    covered: dict[str, list[int]] = {name: [0] * len(runs.columns) for name in runs.rows}
    for s in segments:
        for place in range(s["from"], s["to"]):
            covered[s["prompt"]][place] += 1
    assert all(count == 1 for row in covered.values() for count in row)
    failed = sum(s["to"] - s["from"] for s in segments if s["class"] == "failed")
    assert failed == sum(code == FAILED for row in runs.rows.values() for code in row) > 0
    others = sum(s["to"] - s["from"] for s in segments if s["class"] not in ("A", "failed"))
    assert others == sum(code > 0 for row in runs.rows.values() for code in row) > 0


def test_the_map_is_ordered_by_what_moves_the_text() -> None:
    target = flaky()
    assert next(a for a in target.attributions if a.view == "text").causes == ("load",)
    chart = heat_map(target)
    assert chart.spec is not None
    labels = [v["label"] for layer in chart.spec["layer"] if "data" in layer for v in layer["data"]["values"]]
    assert labels[-2:] == ["load off", "load on"]
    half = len(target.exhibits.runs.columns) // 2
    departed = [s["from"] for s in values(chart) if s["class"] in ("B", "C", "D and others")]
    assert min(departed) >= half


def test_cells_of_many_runs_hide_nothing() -> None:
    [target] = parse_document(raw_document([many_runs(50 * MOST_CELLS)])).targets
    segments = values(heat_map(target))
    assert max(s["to"] for s in segments) == MOST_CELLS
    assert [s["class"] for s in segments] == ["B", "A", "failed"]
    assert "50 runs" in heat_map(target).says


def test_nothing_to_plot_is_said() -> None:
    flaky_, steady, bits = document(several_text()).targets
    assert charts.survival(steady).spec is None
    assert "parted" in charts.survival(steady).says
    assert charts.spread(steady).spec is None
    assert charts.spread(bits).spec is not None
    assert charts.survival(flaky_).spec is not None


def test_a_drawn_plot_is_a_picture_and_nothing_else() -> None:
    [target] = document(hostile_text()).targets
    for kind in KINDS:
        chart = kind(target)
        if chart.spec is None:
            continue
        svg = draw(chart.spec, "x")
        assert svg.startswith("<svg ")
        assert "<script" not in svg
        assert "href" not in svg.replace(visible(HOSTILE), "")
        assert "aria-hidden" in svg.partition(">")[0]
    control = draw(charts.frame([{"mark": "point", "encoding": {"x": {"field": "a"}, "text": {"field": "a"}}}],
                                [{"a": "<script>"}]), "x")  # fmt: skip
    assert "&lt;script&gt;" in control


def test_targets_are_compared_with_their_intervals() -> None:
    targets = document(several_text()).targets
    chart = charts.comparison(targets)
    assert [v["name"] for v in values(chart)] == ["flaky", "steady", "bits"]
    for v, target in zip(values(chart), targets, strict=True):
        assert v["low"] <= v["rate"] == target.repeat_rate <= v["high"]


def with_spread(*spread: float) -> TargetDocument:
    """The flaky target where one prompt alone has log-probabilities, with this spread."""
    target = flaky()
    [(name, scores), *_] = target.metrics.scores.items()
    changed = replace(scores, spread=spread, compared=(2,) * len(spread), variants=2)
    return replace(target, metrics=replace(target.metrics, scores={name: changed}))


def test_spreads_of_any_size_are_plotted_and_what_has_no_size_is_said() -> None:
    chart = charts.spread(with_spread(0.0, 3e-7, 0.02, math.inf, math.nan))
    assert [(v["place"], v["spread"]) for v in values(chart)] == [(1, 3e-7), (2, 0.02)]
    assert "2 differences are infinite or no numbers" in chart.says
    assert draw(chart.spec or {}, "x").count("<path") > 2
    nothing = charts.spread(with_spread(math.inf))
    assert nothing.spec is None
    assert nothing.says.startswith("1 differences are infinite")
    assert "sign of a zero" in charts.spread(with_spread(0.0)).says


def test_many_places_share_a_mark_by_the_largest() -> None:
    spread = [1e-6] * 2000
    spread[777] = 0.5
    chart = charts.spread(with_spread(*spread))
    assert len(values(chart)) <= charts.MOST_POINTS
    assert max(v["spread"] for v in values(chart)) == 0.5
    assert "A mark stands for 8 places" in chart.says
