"""The result document of an audit: what ``--json`` writes, and all that a report is made from.

It is written once, after the runs, and read back in types that refuse everything else. A report needs no journal, no
prompts and no target: the same document gives the same report.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

import samebits
from samebits.audit.attribution import Attribution
from samebits.audit.carry_out import Measured
from samebits.audit.exhibits import Exhibits
from samebits.audit.metrics import Metrics
from samebits.audit.plan import Experiment, Plan
from samebits.audit.preconditions import Exercise, SeedUse
from samebits.audit.ranges import Positive, Share
from samebits.audit.result import Result
from samebits.audit.views import VIEWS
from samebits.counted import counted
from samebits.errors import InputError

FORMAT: Final = 1
REMEDY: Final = "Give a file that `samebits audit --json` of this version wrote."


@dataclass(frozen=True)
class TargetDocument:
    """One target.

    Attributes:
        name: of the target.
        known: what was found when it was opened: model, version, what it accepts.
        notes: what it does not offer, and what seemed odd.
        details: failure → the target's own words, of its first occurrence in the last process.
        verdict: in sentences, the most important one first.
        repeat_rate, metrics, attributions, seeds, chunked, exhibits: see ``Result``.
    """

    name: str
    known: Mapping[str, Any]
    notes: Mapping[str, str]
    details: Mapping[str, str]
    verdict: tuple[str, ...]
    repeat_rate: Share | None
    metrics: Metrics
    attributions: tuple[Attribution, ...]
    seeds: SeedUse
    chunked: Exercise
    exhibits: Exhibits

    def __post_init__(self) -> None:
        if tuple(v.view for v in self.metrics.views) != VIEWS:
            raise ValueError(f"metrics.views are not {', '.join(VIEWS)}")
        if self.repeat_rate != self.metrics.view("text").repeat.value:
            raise ValueError(f"repeat_rate {self.repeat_rate} is not that of the metrics")
        runs = self.exhibits.runs
        if not runs.rows or {len(row) for row in runs.rows.values()} != {len(runs.columns)}:
            raise ValueError("exhibits.runs has no rows, or rows of another length than its columns")
        if any(not 0 <= index < len(runs.conditions) for index, _ in runs.columns):
            raise ValueError("exhibits.runs has a column without a condition")

    @property
    def state(self) -> Literal["different", "bits", "equal", "nothing"]:
        """Texts differ; only log-probabilities do; nothing does, as far as told; nothing could be compared."""
        text, logprobs = self.metrics.view("text").verdict, self.metrics.view("logprobs").verdict
        if text == "different":
            return "different"
        if text != "equal":
            return "nothing"
        return "bits" if logprobs == "different" else "equal"


@dataclass(frozen=True)
class PlanDocument:
    """What was asked; see ``Plan.document``."""

    experiment: Experiment
    prompts: str
    prompt_ids: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """An audit.

    Attributes:
        audit: version of the format.
        created: seconds since 1970.
        command: the command line that repeats it; it holds no keys.
        auditor: what measured: software and machine.
        fail_under: the exact-repeat rate that was demanded of each target; None where none was.
        journal: name of the file with all answers.
        plan: what was asked.
        targets: one or more.
    """

    audit: Literal[1]
    created: Positive
    command: str
    auditor: Mapping[str, str]
    fail_under: Share | None
    journal: str
    plan: PlanDocument
    targets: tuple[TargetDocument, ...]

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError("targets is empty")


def document_of(
    plan: Plan,
    measured: Sequence[Measured],
    results: Sequence[Result],
    *,
    command: str,
    journal: str,
    fail_under: float | None,
) -> dict[str, Any]:
    """The document of an audit that was just carried out, of JSON's types."""
    targets = [
        {
            "name": m.name,
            "known": dict(m.known),
            "notes": dict(m.notes),
            "details": dict(m.progress.details),
            **r.document(),
        }
        for m, r in zip(measured, results, strict=True)
    ]
    return {
        "audit": FORMAT,
        "created": time.time(),
        "command": command,
        "auditor": auditor(),
        "fail_under": fail_under,
        "journal": journal,
        "plan": plan.document(),
        "targets": targets,
    }


def auditor() -> dict[str, str]:
    """What measures: this software and machine, in words. Names no host, user or folder."""
    from samebits.audit.doctor import gather

    facts = gather()
    return {
        "samebits": samebits.__version__,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": f"{facts.cpu}, {facts.cpus} usable",
        "instruction sets": ", ".join(facts.isa) or "none of those that matter here",
        "GPUs": ", ".join(facts.gpus) or "none",
        "packages": ", ".join(f"{name} {version}" for name, version in sorted(facts.packages.items())),
        "libraries": ", ".join(
            f"{x.name} {x.version} ({x.kernels}, {counted(x.threads, 'thread')})" for x in facts.libraries
        ),
    }


def parse_document(value: Any) -> Document:
    """The document that JSON's types stand for.

    Raises:
        InputError: it is none, or of another version; the first field at fault is named.
    """
    if not isinstance(value, dict) or value.get("audit") != FORMAT:
        raise InputError("is no result of samebits audit in a format known here", field="result", remedy=REMEDY)
    try:
        return TypeAdapter(Document).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: {first['msg']}", field="result", remedy=REMEDY) from error


def read_result(path: Path) -> dict[str, Any]:
    """What a result file holds, of JSON's types; it is a document.

    Raises:
        InputError: the file cannot be read, or holds none.
    """
    try:
        value: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot be read: {error}", field="result", remedy=REMEDY) from error
    parse_document(value)
    return value
