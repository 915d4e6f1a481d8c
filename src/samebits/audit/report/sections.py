"""What every form of the report has, in order: verdicts, targets side by side, a section for each, the method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from samebits.audit.attribution import Attribution, Factor
from samebits.audit.report.document import Document, TargetDocument
from samebits.audit.report.facts import (
    DEFINITIONS,
    Pairs,
    Table,
    accuracy_facts,
    asked,
    compared_table,
    gate_says,
    known_facts,
    seed_facts,
    views_table,
)
from samebits.audit.report.words import interval, moment, number, share, short
from samebits.counted import counted, verb

# Status → class of its badge.
KINDS: Final = {
    "moves the bits": "bad",
    "no effect seen": "good",
    "not exercised": "warn",
    "not separable": "warn",
    "not varied": "",
}
STATES: Final = {
    "different": ("not reproducible", "bad"),
    "bits": ("texts repeat, bits do not", "warn"),
    "equal": ("no difference seen", "good"),
    "nothing": ("nothing to compare", "warn"),
}


@dataclass(frozen=True)
class Tile:
    """A figure at the top."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class FactorRow:
    """A row of the table of causes; `kind` is the class of its badge."""

    name: str
    status: str
    kind: str
    levels: tuple[str, ...]
    p: str
    why: str


@dataclass(frozen=True)
class Causes:
    """The table of causes in one view, and what no factor explains."""

    view: str
    rows: tuple[FactorRow, ...]
    within: str

    @property
    def table(self) -> Table:
        """The rows as texts."""
        columns = ("factor", "finding", "runs that depart, by level", "p, corrected", "was it active?")
        return Table(columns, tuple((r.name, r.status, "; ".join(r.levels), r.p, r.why) for r in self.rows))


@dataclass(frozen=True)
class Section:
    """A target; `name` is for ids, `kind` the class of its badge, `word` its text."""

    name: str
    document: TargetDocument
    word: str
    kind: str
    tiles: tuple[Tile, ...]
    causes: tuple[str, ...]
    views: Table
    attributions: tuple[Causes, ...]
    seeds: Pairs
    accuracy: Pairs
    failures: Table
    known: Pairs
    fingerprints: Table


@dataclass(frozen=True)
class Contents:
    """A whole report. `compared` and `gate` are None where there is one target, and where no rate was demanded."""

    title: str
    summary: str
    document: Document
    targets: tuple[Section, ...]
    compared: Table | None
    gate: str | None
    asked: Pairs
    definitions: Pairs


def contents(document: Document) -> Contents:
    """What the report says. Equal documents give equal contents."""
    targets = tuple(_section(f"target-{i}", target) for i, target in enumerate(document.targets, 1))
    alone = len(targets) == 1
    return Contents(
        title=f"How reproducible is {targets[0].document.name}?"
        if alone
        else f"How reproducible are {counted(len(targets), 'target')}?",
        summary=_summary(document),
        document=document,
        targets=targets,
        compared=None if alone else compared_table(document.targets),
        gate=gate_says(document),
        asked=asked(document),
        definitions=DEFINITIONS,
    )


def _summary(document: Document) -> str:
    prompts = len(document.plan.prompt_ids)
    runs = sum(t.metrics.runs + t.metrics.unseeded for t in document.targets)
    began = [t.exhibits.began for t in document.targets if t.exhibits.began is not None]
    return (
        f"{counted(runs, 'run')} of {counted(prompts, 'prompt')}, begun {moment(min(began, default=document.created))}."
    )


def _section(name: str, target: TargetDocument) -> Section:
    m = target.metrics
    word, kind = STATES[target.state]
    failures = tuple((error, number(count), target.details.get(error) or "not told") for error, count in m.errors)
    fingerprints = tuple(
        (f.fingerprint or "none told", number(f.runs), number(f.differing_prompts)) for f in m.fingerprints
    )
    return Section(
        name=name,
        document=target,
        word=word,
        kind=kind,
        tiles=_tiles(target),
        causes=tuple(f"What moves the {a.view}: {', '.join(a.causes)}." for a in target.attributions if a.causes),
        views=views_table(m),
        attributions=tuple(_causes(a) for a in target.attributions),
        seeds=seed_facts(target),
        accuracy=accuracy_facts(target),
        failures=Table(("failure", "runs", "in the target's own words"), failures),
        known=known_facts(target),
        fingerprints=Table(("system fingerprint", "answered runs", "prompts with two texts under it"), fingerprints),
    )


def _tiles(target: TargetDocument) -> tuple[Tile, ...]:
    m = target.metrics
    text, logprobs = m.view("text"), m.view("logprobs")
    differing = sum(p.unique > 1 for p in text.prompts)
    return (
        Tile("exact-repeat rate of texts", share(text.repeat.value), interval(text.repeat.interval)),
        Tile("prompts with differing texts", f"{differing} of {len(text.prompts)}", f"{counted(m.runs, 'run')} in all"),
        Tile("runs that depart", share(text.departure_rate.value), interval(text.departure_rate.interval)),
        Tile("bits of log-probabilities", logprobs.verdict, f"{counted(logprobs.compared, 'run')} compared"),
        Tile("runs without an answer", share(m.failures.value), f"{text.failed} failed"),
    )


def _causes(a: Attribution) -> Causes:
    within = (
        f"Of {counted(a.within_pairs, 'pair')} of runs of one prompt under one and the same condition, "
        f"{a.within_differing:,} {verb(a.within_differing, 'differs', 'differ')}: what no factor explains."
    )
    if not a.within_pairs:
        within = "No prompt was asked twice under one and the same condition: what no factor explains is not known."
    sure = (
        f"The chance of naming any wrong cause is at most {share(a.level)}; a test has "
        f"{counted(a.permutations, 'permutation')}."
    )
    return Causes(a.view, tuple(_factor(f) for f in a.factors), f"{within} {sure}")


def _factor(f: Factor) -> FactorRow:
    why = f.exercise.why if f.exercise else ""
    if f.confounded:
        why = f"it changed only together with {', '.join(f.confounded)}" + (f"; {why}" if why else "")
    levels = tuple(f"{short(x.level)}: {share(x.rate)} of {x.runs:,} ({interval(x.interval)})" for x in f.levels)
    p = "not tested" if f.adjusted is None else number(f.adjusted, 2)
    return FactorRow(f.name, f.status, KINDS[f.status], levels, p, why or "one level only: nothing was varied")
