"""The report as one HTML file: it loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from markupsafe import Markup

from samebits.audit.attribution import Attribution, Factor
from samebits.audit.report import charts
from samebits.audit.report.charts import Chart
from samebits.audit.report.document import Document, TargetDocument
from samebits.audit.report.draw import draw
from samebits.audit.report.facts import (
    DEFINITIONS,
    accuracy_facts,
    asked,
    compared_rows,
    gate_says,
    known_facts,
    seed_facts,
    views_rows,
)
from samebits.audit.report.templates import html_environment
from samebits.audit.report.words import interval, moment, number, share

KINDS = {
    "moves the bits": "bad",
    "no effect seen": "good",
    "not exercised": "warn",
    "not separable": "warn",
    "not varied": "",
}
STATES = {
    "different": ("not reproducible", "bad"),
    "bits": ("texts repeat, bits do not", "warn"),
    "equal": ("no difference seen", "good"),
    "nothing": ("nothing to compare", "warn"),
}


@dataclass(frozen=True)
class Drawn:
    """A plot and its picture; None where there is nothing to plot."""

    chart: Chart
    svg: Markup | None


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Compared:
    """All targets side by side."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    drawn: Drawn


@dataclass(frozen=True)
class Tile:
    """A figure at the top."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class FactorRow:
    """A row of the table of causes."""

    name: str
    status: str
    kind: str
    levels: tuple[str, ...]
    p: str
    why: str


@dataclass(frozen=True)
class Causes:
    """The table of causes in one view."""

    view: str
    rows: tuple[FactorRow, ...]
    within: str


@dataclass(frozen=True)
class Section:
    """A target as the template takes it; `name` is for ids."""

    name: str
    document: TargetDocument
    word: str
    kind: str
    tiles: tuple[Tile, ...]
    causes: tuple[str, ...]
    views: Table
    charts: tuple[Drawn, ...]
    attributions: tuple[Causes, ...]
    seeds: Sequence[tuple[str, str]]
    accuracy: Sequence[tuple[str, str]]
    failures: Sequence[tuple[str, str, str]]
    known: Sequence[tuple[str, str]]
    fingerprints: Sequence[tuple[str, str, str]]


def to_html(document: Document) -> str:
    """The report. Equal documents give equal texts.

    Raises:
        InputError: the package that draws plots is missing.
    """
    sections = [_section(f"target-{i}", target) for i, target in enumerate(document.targets, 1)]
    names = ", ".join(t.name for t in document.targets)
    css = resources.files("samebits.audit.report").joinpath("templates", "report.css").read_text("utf-8")
    compared = None
    if len(sections) > 1:
        rows = compared_rows(document.targets)
        compared = Compared(rows[0], rows[1:], _drawn(charts.comparison(document.targets), "all"))
    return (
        html_environment()
        .get_template("report.html.j2")
        .render(
            title=f"How reproducible is {names}?"
            if len(sections) == 1
            else f"How reproducible are {len(sections)} targets?",
            summary=_summary(document),
            css=Markup(css),
            document=document,
            targets=sections,
            comparison=compared,
            gate=gate_says(document),
            asked=asked(document),
            definitions=DEFINITIONS,
        )
    )


def _summary(document: Document) -> str:
    prompts = len(document.plan.prompt_ids)
    runs = sum(t.metrics.runs + t.metrics.unseeded for t in document.targets)
    began = [t.exhibits.began for t in document.targets if t.exhibits.began is not None]
    when = moment(min(began)) if began else moment(document.created)
    return f"{runs:,} runs of {prompts} prompts, begun {when}."


def _drawn(chart: Chart, name: str) -> Drawn:
    return Drawn(chart, None if chart.spec is None else draw(chart.spec, f"{name}-{chart.key}"))


def _section(name: str, target: TargetDocument) -> Section:
    m = target.metrics
    word, kind = STATES[target.state]
    rows = views_rows(target)
    return Section(
        name=name,
        document=target,
        word=word,
        kind=kind,
        tiles=_tiles(target),
        causes=tuple(f"What moves the {a.view}: {', '.join(a.causes)}." for a in target.attributions if a.causes),
        views=Table(rows[0], rows[1:]),
        charts=tuple(
            _drawn(chart(target), name) for chart in (charts.survival, charts.unique, charts.heat_map, charts.spread)
        ),
        attributions=tuple(_causes(a) for a in target.attributions),
        seeds=seed_facts(target),
        accuracy=accuracy_facts(target),
        failures=[(error, number(count), target.details.get(error) or "not told") for error, count in m.errors],
        known=known_facts(target),
        fingerprints=[
            (f.fingerprint or "none told", number(f.runs), number(f.differing_prompts)) for f in m.fingerprints
        ],
    )


def _tiles(target: TargetDocument) -> tuple[Tile, ...]:
    m = target.metrics
    text, logprobs = m.view("text"), m.view("logprobs")
    differing = sum(p.unique > 1 for p in text.prompts)
    bits = {"equal": "equal", "different": "different"}.get(logprobs.verdict, logprobs.verdict)
    return (
        Tile("exact-repeat rate of texts", share(text.repeat.value), interval(text.repeat.interval)),
        Tile("prompts with differing texts", f"{differing} of {len(text.prompts)}", f"{m.runs:,} runs in all"),
        Tile(
            "runs that depart",
            share(text.departure_rate.value),
            interval(text.departure_rate.interval),
        ),
        Tile("bits of log-probabilities", bits, f"{logprobs.compared:,} runs compared"),
        Tile("runs without an answer", share(m.failures.value), f"{text.failed} failed"),
    )


def _causes(a: Attribution) -> Causes:
    within = (
        f"Of {a.within_pairs:,} pairs of runs of one prompt under one and the same condition, {a.within_differing:,} "
        "differ: what no factor explains. "
        f"The chance of naming any wrong cause is at most {share(a.level)}; {a.permutations:,} permutations a test."
    )
    return Causes(a.view, tuple(_factor(f) for f in a.factors), within)


def _factor(f: Factor) -> FactorRow:
    why = f.exercise.why if f.exercise else ""
    if f.confounded:
        why = f"it changed only together with {', '.join(f.confounded)}" + (f"; {why}" if why else "")
    levels = tuple(f"{x.level}: {share(x.rate)} of {x.runs:,} ({interval(x.interval)})" for x in f.levels)
    p = "not tested" if f.adjusted is None else number(f.adjusted, 2)
    return FactorRow(f.name, f.status, KINDS[f.status], levels, p, why or "one level only: nothing was varied")
