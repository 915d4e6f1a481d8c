"""What an audit found about a target: measures, causes, and what was really exercised, as values and as a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from samebits.audit.attribution import Attribution, attribute
from samebits.audit.exhibits import Exhibits, exhibit
from samebits.audit.intervals import runs_needed
from samebits.audit.metrics import Metrics, in_words, measure
from samebits.audit.observation import Observation
from samebits.audit.plain import plain
from samebits.audit.preconditions import Exercise, SeedUse, chunked_prefill, seed_use
from samebits.audit.prompts import Prompt
from samebits.audit.views import View
from samebits.counted import counted, part
from samebits.errors import MeasurementError

# Causes are sought where people look first, and where differences show first.
ATTRIBUTED: Final[tuple[View, ...]] = ("text", "logprobs")
RARE: Final = 0.01  # a rate of departures that matters where many people ask


@dataclass(frozen=True)
class Result:
    """One target.

    Attributes:
        metrics: all measures.
        attributions: what moved the answers, in the views of ATTRIBUTED in which something can be compared.
        seeds: what became of the seeds.
        chunked: whether a prompt was computed in pieces.
        exhibits: what a report shows beside the measures.
    """

    metrics: Metrics
    attributions: tuple[Attribution, ...]
    seeds: SeedUse
    chunked: Exercise
    exhibits: Exhibits

    @property
    def repeat_rate(self) -> float | None:
        """Exact-repeat rate: the mean over prompts of the share of pairs of runs with equal texts. A pair with a failed
        run is not equal. None where no prompt has two runs.
        """
        return self.metrics.view("text").repeat.value

    def document(self) -> dict[str, Any]:
        """The result, of JSON's types."""
        found = plain(self)
        assert isinstance(found, dict)
        return {"verdict": verdict(self), "repeat_rate": self.repeat_rate, **found}


def evaluate(observations: Sequence[Observation], prompts: Sequence[Prompt] = (), *, seed: int = 0) -> Result:
    """The result of one target.

    Args:
        observations: all of the target.
        prompts: what was asked, for the exhibits.
        seed: of permutations; equal observations and seeds give equal results.

    Raises:
        MeasurementError: every request failed, or every answer is empty.
    """
    if all(o.failed for o in observations):
        errors = sorted({o.error or "" for o in observations})
        raise MeasurementError(
            f"not one of {counted(len(observations), 'request')} was answered: {'; '.join(errors[:3])}"
        )
    metrics = measure(observations)
    answered = metrics.view("text").compared
    if answered and metrics.empty == answered:
        raise MeasurementError(
            f"{metrics.target}: not one of {counted(answered, 'answer')} has any text, so there is nothing to compare. "
            "A model that reasons first may need more --max-tokens"
        )
    compared = [view for view in ATTRIBUTED if metrics.view(view).verdict in ("equal", "different")]
    return Result(
        metrics=metrics,
        attributions=tuple(attribute(observations, view, seed=seed) for view in compared),
        seeds=seed_use(observations),
        chunked=chunked_prefill(observations),
        exhibits=exhibit(observations, prompts, "logprobs" if metrics.view("text").verdict == "equal" else "text"),
    )


def verdict(result: Result) -> list[str]:
    """The result in sentences, the most important one first."""
    metrics = result.metrics
    text, logprobs = metrics.view("text"), metrics.view("logprobs")
    said = []
    if text.verdict == "different":
        differing = sum(p.unique > 1 for p in text.prompts)
        said.append(
            f"NOT reproducible: {part(differing, len(text.prompts), 'prompt')} got different texts for one and the "
            "same request."
        )
    elif text.verdict == "equal" and logprobs.verdict == "different":
        said.append("Every text repeated, but log-probabilities did not: a text differs sooner or later.")
    elif text.verdict == "equal":
        assert text.excluded is not None
        said.append(
            f"No difference seen. What {counted(text.compared, 'run')} exclude, with {metrics.confidence:.0%} "
            f"confidence: that more than {text.excluded:.2%} of runs depart."
        )
    else:
        said.append("Nothing can be said: no prompt has two answers to compare.")
    if text.verdict == "equal":
        said.append(_seen(metrics))
    said += _reservations(metrics)
    said += [in_words(view) for view in metrics.views if view.verdict != "not offered"]
    for attribution in result.attributions:
        said += [sentence for sentence in _causes(attribution) if sentence not in said]  # views have much in common
    said.append(f"Seed: {result.seeds.forwarding}.")
    for name, exercise in (("chunked prefill", result.chunked), ("seed", result.seeds.exercise)):
        if not exercise.shown and (name != "seed" or result.seeds.unseeded_varies is not None):
            said.append(f"Not exercised, so that nothing is known about it: {name} ({exercise.why}).")
    return said


def _seen(metrics: Metrics) -> str:
    """How rare a departure of one prompt the runs could have seen, and how many runs a rare one takes."""
    surely, runs = f"{metrics.confidence:.0%} confidence", f"{counted(metrics.least, 'run')} of one prompt"
    needed = f"for {RARE:.0%} it takes {runs_needed(RARE, metrics.confidence)} runs of a prompt"
    if metrics.smallest_rate is None:
        coin = runs_needed(0.5, metrics.confidence)
        return f"Seen by {runs} with {surely}: nothing, not even a coin flip, which takes {coin}; {needed}."
    return f"Seen by {runs} with {surely}: departures of {metrics.smallest_rate:.2%} of them; {needed}."


def _reservations(metrics: Metrics) -> Iterable[str]:
    """What limits whatever the answers show."""
    answered = metrics.view("text").compared
    if metrics.empty:
        yield (
            f"{part(metrics.empty, answered, 'answer', 'is', 'are')} without text: equality without text says nothing."
        )
    if metrics.cut:
        yield (
            f"{part(metrics.cut, answered, 'answer', 'was', 'were')} cut at the limit of tokens: nothing is known "
            "about what would have followed."
        )


def _causes(attribution: Attribution) -> Iterable[str]:
    if attribution.causes:
        yield f"What moves the {attribution.view}: {', '.join(attribution.causes)}."
    elif attribution.within_differing:
        yield (
            f"No factor explains the differences in {attribution.view}: runs under one and the same condition differ, "
            "too."
        )
    idle = [f"{f.name} ({f.exercise.why})" for f in attribution.factors if f.status == "not exercised" and f.exercise]
    for f in attribution.factors:
        if f.status != "not exercised" and f.exercise and f.exercise.missed:
            yield f"Not reached, so that nothing is known about it: {f.name} {', '.join(f.exercise.missed)}."
    if idle:
        yield f"Not exercised, so that nothing is known about it: {'; '.join(idle)}."
