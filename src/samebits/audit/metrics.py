"""All measures of one target in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from samebits.audit.accuracy import Accuracy, accuracy
from samebits.audit.agreement import READ_OUT, ViewSummary, summarise_all
from samebits.audit.divergence import Divergence, divergence
from samebits.audit.intervals import CONFIDENCE, Estimate, ShareEstimate, rate_interval, smallest_rate_seen
from samebits.audit.observation import Observation
from samebits.audit.ranges import Count, Share
from samebits.audit.scores import ScoreSpread, score_spread
from samebits.audit.views import SAME_WORDS, Meaning, MeaningName, View, by_prompt
from samebits.counted import counted, part
from samebits.errors import InputError


@dataclass(frozen=True)
class FingerprintUse:
    """One value of ``system_fingerprint``.

    Attributes:
        fingerprint: the value; None where the target told none.
        runs: answered runs with it.
        differing_prompts: prompts that have two different texts under it. Above 0, the fingerprint does not stand for
            equal answers.
    """

    fingerprint: str | None
    runs: Count
    differing_prompts: Count


@dataclass(frozen=True)
class Metrics:
    """What the runs of one target show.

    Attributes:
        target: its name.
        runs: all that are measured here.
        unseeded: runs left out because no seed was sent (level ``none`` of ``seed``): these may vary.
        prompts: number of prompts.
        failures: share of runs without an answer.
        errors: each error with its number of runs, most common first.
        empty: answers without any text; that they are equal says nothing.
        cut: answers that ended at the limit of tokens; nothing is known about what would have followed.
        views: one for each of VIEWS, in that order.
        meaning: the measure behind the view ``semantic``.
        divergence: for each prompt.
        scores: for each prompt whose target offers log-probabilities.
        accuracy: None where no prompt expects an answer.
        fingerprints: most common first.
        least: answered runs of the prompt that has the fewest.
        smallest_rate: the rate of departures that so many runs of a prompt show with the given confidence; None where
            they are too few to be sure of any.
        confidence: of all intervals.
    """

    target: str
    runs: Count
    unseeded: Count
    prompts: Count
    failures: ShareEstimate
    errors: tuple[tuple[str, Count], ...]
    empty: Count
    cut: Count
    views: tuple[ViewSummary, ...]
    meaning: MeaningName
    divergence: Mapping[str, Divergence]
    scores: Mapping[str, ScoreSpread]
    accuracy: Accuracy | None
    fingerprints: tuple[FingerprintUse, ...]
    least: Count
    smallest_rate: Share | None
    confidence: Share

    def view(self, name: View) -> ViewSummary:
        """The summary of one view."""
        return next(v for v in self.views if v.view == name)


def measure(
    observations: Sequence[Observation],
    *,
    meaning: Meaning = SAME_WORDS,
    confidence: float = CONFIDENCE,
) -> Metrics:
    """Measure the runs of one target, whatever their conditions: none of these may move an answer.

    Args:
        observations: of one target.
        meaning: the measure of the view ``semantic``.
        confidence: of all intervals.

    Raises:
        InputError: no runs but unseeded ones, or more than one target.
    """
    kept = [o for o in observations if o.level("seed") != "none"]
    targets = sorted({o.target for o in observations})
    if len(targets) > 1:
        raise InputError(f"of {len(targets)} targets", field="observations", remedy="Measure one target at a time.")
    if not kept:
        raise InputError("no run to measure", field="observations", remedy="Give runs whose seed is fixed.")
    grouped = by_prompt(kept)
    failed = Counter(o.error for o in kept if o.error is not None)
    least = min(sum(not o.failed for o in runs) for runs in grouped.values())
    return Metrics(
        target=targets[0],
        runs=len(kept),
        unseeded=len(observations) - len(kept),
        prompts=len(grouped),
        failures=Estimate(
            failed.total() / len(kept), rate_interval(failed.total(), len(kept), confidence), len(kept), "runs"
        ),
        errors=tuple(sorted(failed.items(), key=lambda item: (-item[1], item[0]))),
        empty=sum(o.text == "" for o in kept),
        cut=sum(o.finish_reason == "length" for o in kept if not o.failed),
        views=summarise_all(kept, meaning=meaning, confidence=confidence),
        meaning=MeaningName(meaning.name, meaning.description),
        divergence={prompt_id: divergence(runs) for prompt_id, runs in grouped.items()},
        scores={prompt_id: s for prompt_id, runs in grouped.items() if (s := score_spread(runs)) is not None},
        accuracy=accuracy(kept, confidence=confidence),
        fingerprints=fingerprints(kept),
        least=least,
        smallest_rate=smallest_rate_seen(least, confidence) if least else None,
        confidence=confidence,
    )


def fingerprints(observations: Sequence[Observation]) -> tuple[FingerprintUse, ...]:
    """The fingerprints of the answered runs of one target, and whether equal ones meant equal texts."""
    runs: Counter[str | None] = Counter()
    texts: dict[tuple[str | None, str], set[str]] = {}
    for o in observations:
        if o.text is not None:
            runs[o.fingerprint] += 1
            texts.setdefault((o.fingerprint, o.prompt_id), set()).add(o.text)
    differing = Counter(fingerprint for (fingerprint, _), seen in texts.items() if len(seen) > 1)
    ordered = sorted(runs.items(), key=lambda item: (-item[1], item[0] or ""))
    return tuple(FingerprintUse(f, n, differing[f]) for f, n in ordered)


def in_words(summary: ViewSummary) -> str:
    """The verdict of a view as one sentence."""
    name = {"token_ids": "token ids", "logprobs": "bits of log-probabilities", "parsed": "parsed JSON"}.get(
        summary.view, summary.view
    )
    runs, prompts = summary.compared, len(summary.prompts)
    failed = f" {counted(summary.failed, 'more run')} failed." if summary.failed else ""
    if summary.verdict == "not offered":
        return f"{name}: not offered by the target, so nothing is known."
    if summary.verdict == "too few runs":
        return f"{name}: no prompt has two answers to compare.{failed}"
    if summary.verdict == "equal":
        assert summary.excluded is not None
        confidence = summary.departure_rate.interval.confidence if summary.departure_rate.interval else CONFIDENCE
        return (
            f"{name}: no difference in {counted(runs, 'run')} of {counted(prompts, 'prompt')}; with {confidence:.0%} "
            f"confidence at most {summary.excluded:.2%} of runs depart.{failed}"
        )
    unread = ""
    if summary.view in READ_OUT and summary.without:
        unread = (
            f" Nothing could be read out of {part(summary.without, runs, 'answer')}; such a run agrees with no other."
        )
    if summary.verdict == "unreadable":
        return f"{name}: unreadable in part, so not measured in full; no two that could be read differ.{unread}{failed}"
    differing = sum(p.outcomes > 1 for p in summary.prompts)
    departed = part(summary.departures, runs, "run", "departs", "depart")
    have = part(differing, prompts, "prompt", "has", "have")
    return f"{name}: {have} differing runs; {departed}.{unread}{failed}"
