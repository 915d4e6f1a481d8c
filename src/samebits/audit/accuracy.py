"""Right and wrong answers: how far accuracy wanders from pass to pass, and which items flip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from samebits.audit.intervals import CONFIDENCE, Estimate, ShareEstimate, mean_interval
from samebits.audit.observation import Condition, Observation
from samebits.audit.ranges import Count, Share
from samebits.audit.views import by_prompt


@dataclass(frozen=True)
class Flips:
    """The answers to one item.

    Attributes:
        prompt_id: which item.
        runs: its runs, failed ones included.
        flips: runs whose answer is not the most common one; no answer is a flip.
        correct: runs with the expected answer; a run that failed is not correct.
    """

    prompt_id: str
    runs: Count
    flips: Count
    correct: Count

    @property
    def undecided(self) -> bool:
        """Whether some runs are correct and some are not."""
        return 0 < self.correct < self.runs


@dataclass(frozen=True)
class Accuracy:
    """Accuracy over the items that expect an answer.

    A pass is one run of every item under one condition: what somebody who evaluates once would have seen.

    Attributes:
        items: one for each prompt that expects an answer, in order of ids.
        mean: mean over items of the share of correct runs.
        passes: accuracy of each complete pass, in order of condition and run.
        incomplete: passes left out because an item is missing.
        best_possible: share of items that some run got right (Atil et al.).
        worst_possible: share of items that all runs got right.
    """

    items: tuple[Flips, ...]
    mean: ShareEstimate
    passes: tuple[Share, ...]
    incomplete: Count
    best_possible: Share
    worst_possible: Share

    @property
    def spread(self) -> float | None:
        """Best minus worst pass; None with fewer than two."""
        return max(self.passes) - min(self.passes) if len(self.passes) > 1 else None


def accuracy(observations: Sequence[Observation], *, confidence: float = CONFIDENCE) -> Accuracy | None:
    """Accuracy of one target; None where no prompt expects an answer.

    A prompt expects one when `correct` is known for some run of it.
    """
    grouped = {
        prompt_id: runs
        for prompt_id, runs in by_prompt(observations).items()
        if any(o.correct is not None for o in runs)
    }
    if not grouped:
        return None
    items = tuple(_flips(prompt_id, runs) for prompt_id, runs in grouped.items())
    shares = np.array([item.correct / item.runs for item in items])
    passes: dict[tuple[Condition, int], dict[str, bool]] = {}
    for prompt_id, runs in grouped.items():
        for o in runs:
            passes.setdefault((o.condition, o.run), {})[prompt_id] = o.correct is True
    complete = [list(p.values()) for _, p in sorted(passes.items()) if len(p) == len(grouped)]
    return Accuracy(
        items=items,
        mean=Estimate(float(shares.mean()), mean_interval(shares, confidence=confidence), len(items), "prompts"),
        passes=tuple(sum(p) / len(p) for p in complete),
        incomplete=len(passes) - len(complete),
        best_possible=sum(item.correct > 0 for item in items) / len(items),
        worst_possible=sum(item.correct == item.runs for item in items) / len(items),
    )


def _flips(prompt_id: str, runs: Sequence[Observation]) -> Flips:
    answers = Counter(o.answer for o in runs if o.answer is not None)
    common = max(answers.values(), default=0)
    return Flips(prompt_id, len(runs), len(runs) - common, sum(o.correct is True for o in runs))
