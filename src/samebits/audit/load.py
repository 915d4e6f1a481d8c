"""What arrives before each step of a measurement, fixed in advance: nothing that an engine answers can change it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from samebits.engine import Request, SamplingParams

SEED = 20260101
MOST_OTHERS = 16
MOST_ASKED = 8  # runs of the measured prompt that overlap


@dataclass(frozen=True)
class Arrivals:
    """What arrives before one step.

    Attributes:
        asked: how many runs of the measured prompt.
        others: other requests.
    """

    asked: int = 0
    others: tuple[Request, ...] = ()


def others_wanted(rng: random.Random) -> Iterator[int]:
    """How many other requests are to run, step by step: another number every 4 to 24 steps."""
    while True:
        wanted = rng.choice((0, 1, 2, 4, 8, MOST_OTHERS))
        for _ in range(rng.randint(4, 24)):
            yield wanted


def plan_load(runs: int, max_tokens: int, vocabulary: int) -> list[Arrivals]:
    """The arrivals of ``runs`` runs of a prompt among random, changing other requests.

    Planned by the most steps that a request can take when nothing waits, one for each of its tokens. A run that ends
    earlier makes room for nothing: the plan depends on the arguments alone, and so is the same in every mode.

    Args:
        runs: of the measured prompt.
        max_tokens: of each run.
        vocabulary: prompts of others are random ids below it.
    """
    wanted = others_wanted(random.Random(SEED))
    content, moments = random.Random(SEED + 1), random.Random(SEED + 2)
    plan: list[Arrivals] = []
    asked_ends: list[int] = []  # for each run under way, the step in which it has ended at the latest
    other_ends: list[int] = []
    started = 0
    while started < runs or asked_ends:
        now = len(plan)
        asked_ends = [end for end in asked_ends if end > now]
        other_ends = [end for end in other_ends if end > now]
        others = [_random_request(content, vocabulary) for _ in range(next(wanted) - len(other_ends))]
        other_ends += [now + (request.params.max_tokens or 0) for request in others]
        asked = 0
        while started < runs and len(asked_ends) < MOST_ASKED and (not asked_ends or moments.random() < 0.25):
            asked_ends.append(now + max_tokens)
            started += 1
            asked += 1
        plan.append(Arrivals(asked, tuple(others)))
    return plan


def _random_request(rng: random.Random, vocabulary: int) -> Request:
    prompt = tuple(rng.randrange(vocabulary) for _ in range(rng.randint(1, 96)))
    return Request(prompt, SamplingParams(max_tokens=rng.randint(1, 48), ignore_eos=True))
