"""What every form of the report says in the same words: tables and pairs of name and value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from samebits.audit.metrics import Metrics
from samebits.audit.observation import FACTORS
from samebits.audit.report.document import Document, TargetDocument
from samebits.audit.report.words import estimate, interval, share, told
from samebits.counted import counted

Pairs = Sequence[tuple[str, str]]
MOST_ITEMS: Final = 12
# What was found when a target was opened, as a reader calls it.
KNOWN: Final = {
    "accepted": "parts of a request that it takes",
    "limit_name": "name of the limit of tokens",
    "first_questions": "probing requests",
    "best_tokens": "best tokens, at most",
}


@dataclass(frozen=True)
class Table:
    """A table of texts; the first cell of a row names it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


DEFINITIONS: Final[Pairs] = (
    ("run", "one request and what came of it; it failed when there is no answer, and then it repeats nothing"),
    ("to depart", "not to have the most common answer of one's prompt"),
    ("exact-repeat rate", "the share of pairs of runs of a prompt that are equal; the mean over prompts"),
    ("all runs agree", "the share of prompts whose runs all have the same text or answer (total agreement rate)"),
    ("body", "the whole response, without ids, clocks and cache counters"),
    ("logprobs", "every bit of every log-probability of the answer's tokens"),
    (
        "parsed, answer",
        "the JSON in the text, in canonical form; the label or number in it; what cannot be read agrees with nothing",
    ),
    ("interval", "where the value lies with the stated confidence; where nothing was seen, by the rule of three"),
    ("moves the bits", "the test of the factor is significant after correction for all factors, all others held fixed"),
    ("not exercised", "nothing shows that the condition was met, so nothing is known about the factor"),
    ("not separable", "the factor changed only together with others"),
)


def views_table(metrics: Metrics) -> Table:
    """A row for each of the seven views."""
    head = (
        "equal in",
        "verdict",
        "exact-repeat rate",
        "interval",
        "different answers",
        "most common",
        "all runs agree",
    )
    rows = tuple(
        (
            v.view.replace("_", " "),
            v.verdict,
            share(v.repeat.value),
            interval(v.repeat.interval) if v.repeat.value is not None else "–",
            "–" if v.unique.value is None else f"{v.unique.value:.2f}",
            share(v.modal_share.value),
            share(v.total_agreement.value),
        )
        for v in metrics.views
    )
    return Table(head, rows)


def compared_table(targets: Sequence[TargetDocument]) -> Table:
    """A row for each target."""
    head = ("target", "text", "log-probabilities", "exact-repeat rate", "interval", "what moves the text", "failed")
    rows = []
    for t in targets:
        text = t.metrics.view("text")
        causes = next((a.causes for a in t.attributions if a.view == "text"), ())
        rows.append(
            (
                t.name,
                text.verdict,
                t.metrics.view("logprobs").verdict,
                share(t.repeat_rate),
                interval(text.repeat.interval),
                ", ".join(causes) or "nothing shown",
                f"{text.failed} of {t.metrics.runs:,}",
            )
        )
    return Table(head, tuple(rows))


def gate_says(document: Document) -> str | None:
    """Whether the targets reach the rate that was demanded; None where none was."""
    if document.fail_under is None:
        return None
    below = [t.name for t in document.targets if not passes(t, document.fail_under)]
    rate = f"an exact-repeat rate of {document.fail_under:g} (--fail-under)"
    return f"Demanded was {rate}. " + (f"Below it: {', '.join(below)}." if below else "No target is below it.")


def passes(target: TargetDocument, fail_under: float) -> bool:
    """Whether the point estimate reaches the rate; without one there is nothing that passes."""
    return target.repeat_rate is not None and target.repeat_rate >= fail_under


def asked(document: Document) -> Pairs:
    """The plan."""
    e = document.plan.experiment
    prompts = document.plan.prompt_ids
    sampling = "the target's own" if e.temperature is None else f"temperature {e.temperature:g}"
    factors = [
        (name, f"{told(levels or 'as it comes')} ({FACTORS[name].split(':')[0]})")
        for name, levels in e.factors().items()
    ]
    top = (
        "not asked for"
        if e.top_logprobs is None
        else f"with the {counted(e.top_logprobs, 'best token')}, or as many as a target takes"
    )
    return (
        ("prompts", f"{len(prompts)}: {', '.join(prompts[:12])}{' …' if len(prompts) > 12 else ''}"),
        ("digest of the prompts", document.plan.prompts),
        ("runs", f"{e.runs} of each prompt under each combination of the levels below"),
        *factors,
        ("blocks", f"{e.times} of time, {counted(e.orders, 'order')} of the prompts"),
        ("sampling", f"{sampling}, seed {e.seed}, at most {counted(e.max_tokens, 'token')}"),
        ("log-probabilities", top),
    )


def seed_facts(target: TargetDocument) -> Pairs:
    """What became of the seeds."""
    s = target.seeds
    meaning = {
        "forwarded": "each seed that was sent came back as the seed used",
        "not forwarded": "the target used another seed than the one that was sent",
        "not verifiable": "the target does not always tell the seed that it used",
        "not sent": "no seed was sent, or the target does not take one",
    }[s.forwarding]
    exercise = s.exercise
    works = "equal answers under one seed show that the seed works" if exercise.shown else "not exercised"
    return (
        ("seed", f"{s.forwarding}: {meaning}"),
        ("sent, told back, another told", f"{s.sent:,}, {s.echoed:,}, {s.differing:,}"),
        ("does it work?", f"{works}: {exercise.why}"),
    )


def accuracy_facts(target: TargetDocument) -> Pairs:
    """Right and wrong answers; none where no prompt expects one."""
    a = target.metrics.accuracy
    if a is None:
        return ()
    passes = "no complete pass"
    if a.passes:
        over = f"{counted(len(a.passes), 'pass', 'passes')} of {counted(len(a.items), 'prompt')}"
        passes = f"{share(min(a.passes))} to {share(max(a.passes))} over {over}"
    undecided = sum(item.undecided for item in a.items)
    flipping = sorted(
        (item for item in a.items if item.flips), key=lambda item: (-item.flips / item.runs, item.prompt_id)
    )
    flips = "; ".join(f"{item.prompt_id}: {item.flips} of {item.runs}" for item in flipping[:MOST_ITEMS])
    more = f"; and {counted(len(flipping) - MOST_ITEMS, 'item')} more" if len(flipping) > MOST_ITEMS else ""
    return (
        ("accuracy, mean", estimate(a.mean)),
        ("from pass to pass", passes),
        ("worst and best possible", f"{share(a.worst_possible)} and {share(a.best_possible)}"),
        ("sometimes right, sometimes wrong", f"{undecided} of {len(a.items)}"),
        ("runs whose answer flips or cannot be read, by item", f"{flips}{more}" if flips else "none"),
    )


def known_facts(target: TargetDocument) -> Pairs:
    """What is known about the target, and what it does not offer."""
    known = [(KNOWN.get(name, name), told(value)) for name, value in target.known.items() if name != "notes"]
    return (*known, *((f"note: {name}", note) for name, note in target.notes.items()))
