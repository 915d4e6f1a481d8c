"""Two targets, or one at two dates, out of journals: what to compare, and the comparison in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from samebits.audit.compare import Comparison, McNemar
from samebits.audit.journal import read_head, read_journal
from samebits.audit.metrics import fingerprints
from samebits.audit.observation import Observation
from samebits.audit.plan import read_experiment
from samebits.counted import counted, part, verb
from samebits.errors import InputError, MeasurementError

# Settings of an experiment that answers follow. The others only say how often, and beside what, was asked.
MOVING: Final = ("temperature", "top_p", "seed", "max_tokens")
RELATIVE: Final = frozenset({"time", "order"})  # factors whose levels are only told apart within one audit
SHOWN: Final = 8  # names of prompts in a sentence


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: for people: the target, and the journal where the other side has the same target.
        observations: of one target.
        journal: that they are from.
        planned: requests of the audit's plan, for this target.
        fingerprints: those seen, most common first.
        failed: runs without an answer; they are not compared.
        missing: planned requests without an outcome: the audit is unfinished.
    """

    name: str
    observations: tuple[Observation, ...]
    journal: Path
    planned: int

    @property
    def fingerprints(self) -> tuple[str, ...]:
        return tuple(use.fingerprint or "none told" for use in fingerprints(self.observations))

    @property
    def failed(self) -> int:
        return sum(o.failed for o in self.observations)

    @property
    def missing(self) -> int:
        return max(0, self.planned - len({(o.prompt_id, o.run, o.condition) for o in self.observations}))

    @property
    def levels(self) -> dict[str, set[str]]:
        """Factor → its levels with an answer."""
        found: dict[str, set[str]] = {}
        for condition in {o.condition for o in self.observations if not o.failed}:
            for factor, level in condition:
                found.setdefault(factor, set()).add(level)
        return found


@dataclass(frozen=True)
class Sides:
    """The two sides of a comparison.

    Attributes:
        first, second: the two.
        asked_differently: settings that answers follow and that were not the same: name → values.
        planned_differently: the other settings that were not: how often, and beside what, was asked.
    """

    first: Side
    second: Side
    asked_differently: dict[str, tuple[Any, Any]]
    planned_differently: dict[str, tuple[Any, Any]]

    @property
    def finished(self) -> bool:
        """Whether each planned request of both has an outcome."""
        return not (self.first.missing or self.second.missing)

    def only(self, side: Side) -> dict[str, list[str]]:
        """Factor → its levels under which this side has answers, and the other one has none."""
        other = (self.second if side is self.first else self.first).levels
        lone = {factor: sorted(levels - other.get(factor, set())) for factor, levels in side.levels.items()}
        return {factor: levels for factor, levels in lone.items() if levels and factor not in RELATIVE}

    def document(self) -> dict[str, Any]:
        """What is known about them, of JSON's types."""
        return {
            "finished": self.finished,
            "sides": [
                {
                    "name": side.name,
                    "journal": str(side.journal),
                    "planned": side.planned,
                    "missing": side.missing,
                    "failed": side.failed,
                    "fingerprints": list(side.fingerprints),
                    "only_here": self.only(side),
                }
                for side in (self.first, self.second)
            ],
            "asked_differently": self.asked_differently,
            "planned_differently": self.planned_differently,
        }


def read_sides(journals: Sequence[Path], first: str | None, second: str | None) -> Sides:
    """The two sides of a comparison.

    Args:
        journals: one that has both targets, or two: the earlier or trusted one first.
        first, second: names of targets; None where a journal leaves no choice.

    Raises:
        InputError: a journal cannot be read, asked other prompts, or leaves a choice of targets; or both sides are one
            and the same.
        MeasurementError: not one request of a side was answered.
    """
    if len(journals) not in (1, 2):
        raise InputError(f"{len(journals)} were named", field="journals", remedy="Name one or two.")
    heads = [read_head(path) for path in journals]
    if len({head.get("prompts") for head in heads}) > 1:
        raise InputError(
            "the two asked different prompts", field="journals", remedy="Ask both the same: --prompts with one file."
        )
    experiments = [read_experiment(head) for head in heads]
    found = [_by_target(path) for path in journals]
    if len(journals) == 1:
        names = _two_of(found[0], first, second)
    else:
        names = [_one_of(found[0], first, "first"), _one_of(found[1], second, "second")]
    same = names[0] == names[1]
    sides = []
    for name, i in zip(names, (0, -1), strict=True):
        planned = _prompts(heads[i]) * experiments[i].runs_in_all
        sides.append(Side(f"{name} in {journals[i]}" if same else name, found[i][name], journals[i], planned))
    # The head has the moment of its writing, so that a copy of a journal is found out, too.
    if same and heads[0] == heads[-1]:
        raise InputError(
            f"both sides are {names[0]!r} of one and the same audit", field="journals", remedy="Name another one."
        )
    for side in sides:
        if side.failed == len(side.observations):
            raise MeasurementError(f"{side.name}: not one of {counted(side.failed, 'request')} was answered")
    asked = [asdict(experiment) for experiment in experiments]
    differently = {k: (asked[0][k], asked[-1][k]) for k in asked[0] if asked[0][k] != asked[-1][k]}
    moving = {k: values for k, values in differently.items() if k in MOVING}
    resting = {k: values for k, values in differently.items() if k not in MOVING}
    return Sides(sides[0], sides[1], moving, resting)


def _prompts(head: Mapping[str, Any]) -> int:
    ids = head.get("prompt_ids")
    if not isinstance(ids, list) or not ids:
        raise InputError("prompt_ids: is no list of prompts", field="journal", remedy="Name a journal.")
    return len(ids)


def _by_target(path: Path) -> dict[str, tuple[Observation, ...]]:
    found: dict[str, list[Observation]] = {}
    for observation in read_journal(path):
        found.setdefault(observation.target, []).append(observation)
    if not found:
        raise InputError(f"{path} holds no answers", field="journals", remedy="Finish its audit first.")
    return {name: tuple(runs) for name, runs in found.items()}


def _two_of(targets: Iterable[str], first: str | None, second: str | None) -> list[str]:
    names = list(targets)
    if first is None and second is None and len(names) == 2:
        return names
    if first is None or second is None:
        shown = ", ".join(names)
        raise InputError(
            f"the journal has {counted(len(names), 'target')}: {shown}",
            field="first",
            remedy="Name --first and --second of them.",
        )
    return [_one_of(names, name, field) for name, field in ((first, "first"), (second, "second"))]


def _one_of(targets: Iterable[str], name: str | None, field: str) -> str:
    names = list(targets)
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        said = (
            f"there is no target {name!r}"
            if name
            else f"there {verb(len(names), 'is', 'are')} {counted(len(names), 'target')}"
        )
        raise InputError(f"{said} in its journal", field=field, remedy=f"Give one of {', '.join(names)}.")
    return name


# ---- in words --------------------------------------------------------------------------------------------------------


def verdict(found: Comparison, sides: Sides) -> list[str]:
    """A comparison in sentences, the most important one first."""
    said = [_answers(found), *_replayed(found)]
    if found.beyond_luck:  # then it decides, whatever the test of distributions sees
        said.reverse()
    said += _reservations(found, sides)
    if found.flips is not None:
        said.append(_flips(found.flips))
    for side in (sides.first, sides.second):
        seen = ", ".join(side.fingerprints) or "none, since nothing was answered"
        failed = (
            f"; {counted(side.failed, 'failed run')} {verb(side.failed, 'is', 'are')} not compared"
            if side.failed
            else ""
        )
        said.append(f"{side.name}: fingerprints {seen}{failed}.")
    for name, (one, other) in sides.asked_differently.items():
        said.append(f"Not asked alike: {name} was {one} and {other}, so a difference may be of that.")
    for name, only in ((sides.first.name, found.only_first), (sides.second.name, found.only_second)):
        if only:
            said.append(f"Only {name} answered {_names(only)}; not compared.")
    return said


def _reservations(found: Comparison, sides: Sides) -> Iterable[str]:
    """What limits the verdict: audits that are not finished, and plans that are not the same."""
    for side in (sides.first, sides.second):
        if side.missing:
            yield (
                f"UNFINISHED: {part(side.missing, side.planned, 'planned request')} of {side.name} "
                f"{verb(side.missing, 'has', 'have')} no outcome. The "
                "verdict is about the others, among which conditions need not weigh as planned. The command of its "
                f"audit with --journal {shlex.quote(str(side.journal))} goes on with it."
            )
    if sides.planned_differently:
        values = "; ".join(
            f"{name} {_set(one)} and {_set(other)}" for name, (one, other) in sides.planned_differently.items()
        )
        yield f"Not the same plan: {values}."
    for side in (sides.first, sides.second):
        alone = "; ".join(f"{factor} {', '.join(levels)}" for factor, levels in sides.only(side).items())
        if alone:
            follows = "a difference may be of that" if found.different else "of the other side there, nothing is known"
            yield f"Only {side.name} has answers under {alone}: {follows}."


def _set(value: Any) -> str:
    """A setting in words."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "as it comes"
    return "not set" if value is None else str(value)


def _answers(found: Comparison) -> str:
    if found.mmd is None:
        return "Nothing can be said of the distribution of answers: no prompt has two answers on both sides."
    p = found.adjusted["answers"]
    effect = f"{found.mmd.shift:.2%} of the runs moved, p = {p:.4f} after correction"
    seen = "even a shift of all runs would hardly have been seen"
    if found.smallest_shift is not None:
        seen = f"a shift of {found.smallest_shift:.0%} of the runs would have been seen with a chance of 80%"
    if found.answers == "different":
        moved = [x.prompt_id for x in found.prompts if x.adjusted is not None and x.adjusted <= found.level]
        return f"The answers DIFFER: as if {effect}. Alone significant: {_names(moved) or 'no single prompt'}."
    if found.answers == "below the floor":
        return f"The answers differ, but below the floor of {found.floor:.0%}: as if {effect}. That is no alarm."
    return f"No difference of answers seen by the test of distributions: p = {p:.4f}; {seen}."


def _replayed(found: Comparison) -> Iterable[str]:
    if not found.constant:
        return
    on = f"n {counted(found.constant, 'prompt')} each side always gave one answer"
    other = [x.prompt_id for x in found.prompts if x.constant and not x.equal]
    if not other:
        yield f"O{on}; all match."
    elif found.beyond_luck:
        yield f"The answers DIFFER: o{on}; {len(other)} {verb(len(other), 'does', 'do')} NOT match: {_names(other)}."
    else:
        do = verb(len(other), "does", "do")
        yield f"O{on}; {len(other)} {do} not match, which may be luck, since others vary: {_names(other)}."


def _flips(found: McNemar) -> str:
    spread = "unknown" if found.run_spread is None else f"{found.run_spread:.2%}"
    return (
        f"Right on one side only: {found.first_only} on the first, {found.second_only} on the second, of "
        f"{counted(found.items, 'item')} ({found.fewest} in one direction {verb(found.fewest, 'is', 'are')} needed); "
        f"accuracy {found.difference:+.2%}, spread from run to run {spread}: {found.verdict}."
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
