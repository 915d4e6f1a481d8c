"""Speed against reproducibility, as a picture (SVG) and as a page that needs nothing else (HTML)."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

import jinja2

from samebits.audit.intervals import Estimate
from samebits.audit.report.draw import check_drawing
from samebits.audit.tradeoff.measure import Row, Tradeoff
from samebits.audit.tradeoff.published import PUBLISHED
from samebits.counted import counted

VEGA_LITE: Final = "6.4"
TEMPLATE: Final = "page.html.j2"
WITHOUT: Final = "--json"  # what can be done where nothing can be drawn


def specification(result: Tradeoff) -> dict[str, Any]:
    """The chart in Vega-Lite: across, speed with many streams; upwards, how often texts repeat."""
    points = [
        {
            "name": row.approach.name,
            "speed": row.speed.together,
            "repeat": row.texts.value,
            "sampling": "greedy" if row.approach.temperature == 0 else "sampled",
        }
        for row in result.measured
        if row.speed is not None and row.texts is not None and row.texts.value is not None
    ]
    across = {
        "field": "speed",
        "type": "quantitative",
        "scale": {"type": "log", "nice": True, "padding": 40},
        "title": f"output tokens per second, {result.size.streams} at a time",
    }
    upwards = {
        "field": "repeat",
        "type": "quantitative",
        "scale": {"domain": [-0.05, 1.05], "nice": False},
        "axis": {"format": "%", "values": [0, 0.25, 0.5, 0.75, 1]},
        "title": "pairs of runs with the same text",
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": 760,
        "height": 420,
        "data": {"values": points},
        # Names stand in the legend, since those of points at one height would cover each other.
        "encoding": {
            "x": across,
            "y": upwards,
            "color": {
                "field": "name",
                "type": "nominal",
                "sort": [point["name"] for point in points],
                "scale": {"scheme": "tableau10"},
                "title": None,
                "legend": {"labelLimit": 300},
            },
            "shape": {"field": "sampling", "type": "nominal", "title": None},
        },
        "mark": {"type": "point", "filled": True, "size": 130, "opacity": 0.8, "stroke": "#333333", "strokeWidth": 0.6},
        "config": {"view": {"stroke": None}, "font": "system-ui, sans-serif"},
    }


def svg(result: Tradeoff) -> str:
    """The chart.

    Raises:
        InputError: the package that draws is missing.
    """
    check_drawing(WITHOUT)
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(specification(result), vl_version=VEGA_LITE, allowed_base_urls=[])
    return drawn


def page(result: Tradeoff, facts: dict[str, str]) -> str:
    """The chart with its table and the published figures.

    Args:
        facts: what a reader must know of the run: machine, versions, date.

    Raises:
        InputError: the package that draws is missing.
    """
    source = resources.files(__package__).joinpath(TEMPLATE).read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["counted"] = counted
    return environment.from_string(source).render(
        chart=svg(result),
        result=result,
        rows=[_cells(result, row) for row in result.rows],
        facts=facts,
        published=PUBLISHED,
    )


def _cells(result: Tradeoff, row: Row) -> dict[str, Any]:
    return {"row": row, "cells": cells(result, row)}


def cells(result: Tradeoff, row: Row) -> list[str] | None:
    """The figures of a row as texts: speeds with their ratios to the default, then repetition; None if not measured."""
    if row.speed is None or row.texts is None or row.bits is None:
        return None
    relative = result.relative(row)
    ratios = ("–", "–") if relative is None else (f"{relative.alone:.2f}", f"{relative.together:.2f}")
    speeds = [f"{row.speed.alone:,.0f}", ratios[0], f"{row.speed.together:,.0f}", ratios[1]]
    return [*speeds, _from(row.texts), _from(row.bits)]


def _from(rate: Estimate) -> str:
    """A rate and the lower end of its interval."""
    if rate.value is None:
        return "–"
    return f"{rate.value:.0%}" if rate.interval is None else f"{rate.value:.0%} (≥ {rate.interval.low:.0%})"
