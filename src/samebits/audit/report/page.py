"""The report as one HTML file: it loads nothing and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from markupsafe import Markup

from samebits.audit.report import charts
from samebits.audit.report.charts import Chart
from samebits.audit.report.document import Document
from samebits.audit.report.draw import draw
from samebits.audit.report.heat_map import heat_map
from samebits.audit.report.sections import contents
from samebits.audit.report.templates import html_environment


@dataclass(frozen=True)
class Drawn:
    """A plot and its picture; None where there is nothing to plot."""

    chart: Chart
    svg: Markup | None


def to_html(document: Document) -> str:
    """The report. Equal documents give equal texts.

    Raises:
        InputError: the package that draws plots is missing.
    """
    found = contents(document)
    kinds = (charts.survival, charts.unique, heat_map, charts.spread)
    plots = {t.name: [_drawn(kind(t.document), t.name) for kind in kinds] for t in found.targets}
    css = resources.files("samebits.audit.report").joinpath("templates", "report.css").read_text("utf-8")
    template = html_environment().get_template("report.html.j2")
    return template.render(
        vars(found),
        plots=plots,
        comparison=None if found.compared is None else _drawn(charts.comparison(document.targets), "all"),
        css=Markup(css),
    )


def _drawn(chart: Chart, name: str) -> Drawn:
    return Drawn(chart, None if chart.spec is None else draw(chart.spec, f"{name}-{chart.key}"))
