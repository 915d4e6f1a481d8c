"""Was it really so? What shows that a level of a factor was met, beyond having been asked for.

A check that never met its case must not pass: a cache that was never hit, a prompt that was never cut, requests that
never overlapped, a seed that never mattered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Final, Literal

from samebits.audit.observation import Observation
from samebits.audit.ranges import Count
from samebits.audit.views import by_prompt
from samebits.counted import counted, part

# Share of a level's runs that must have met it; the first and last requests of a block never do.
SHARE: Final = 0.5

Forwarding = Literal["forwarded", "not forwarded", "not verifiable", "not sent"]


@dataclass(frozen=True)
class Exercise:
    """Whether a factor was shown to be active, and why, in words; `missed`: levels that were not met all the same."""

    shown: bool
    why: str
    missed: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeedUse:
    """What became of the seeds.

    Attributes:
        forwarding: ``forwarded``: each seed that was sent came back as the seed used; ``not forwarded``: another one
            did; ``not verifiable``: the target does not always tell one; ``not sent``.
        sent, echoed, differing: runs with a seed sent; of these, that told the same one; that told another one.
        unseeded_varies: whether the runs without a seed differ in text on some prompt; None without such runs.
    """

    forwarding: Forwarding
    sent: Count
    echoed: Count
    differing: Count
    unseeded_varies: bool | None

    @property
    def exercise(self) -> Exercise:
        """Whether equal answers under one seed show that the seed works."""
        if self.unseeded_varies is None:
            return Exercise(False, "there are no runs without a seed to compare with")
        if not self.unseeded_varies:
            return Exercise(False, "the runs without a seed do not vary either, so the seed has nothing to do")
        return Exercise(True, "the runs without a seed vary")


def exercised(factor: str, observations: Sequence[Observation]) -> Exercise:
    """Whether the levels of a factor were met, by the evidence in the answered runs.

    A factor without a check here, one of the user's own, counts as met: the experiment alone decides about it.
    """
    check = _CHECKS.get(factor)
    if check is None:
        return Exercise(True, "set by the experiment")
    levels: dict[str, list[Observation]] = {}
    for o in observations:
        level = o.level(factor)
        if level is not None and not o.failed:
            levels.setdefault(level, []).append(o)
    return check(levels)


def chunked_prefill(observations: Sequence[Observation]) -> Exercise:
    """Whether some prompt was computed in at least two pieces."""
    told = [o.evidence.prefill_chunks for o in observations if o.evidence.prefill_chunks is not None]
    if not told:
        return Exercise(False, "the target does not tell in how many pieces it computes a prompt")
    cut = sum(n >= 2 for n in told)
    return Exercise(cut > 0, f"{part(cut, len(told), 'run')} had their prompt computed in two or more pieces")


def seed_use(observations: Sequence[Observation]) -> SeedUse:
    """What became of the seeds of one target's answered runs."""
    answered = [o for o in observations if not o.failed]
    sent = [o.evidence for o in answered if o.evidence.seed_sent is not None]
    told = [e for e in sent if e.seed_echoed is not None]
    differing = sum(e.seed_echoed != e.seed_sent for e in told)
    unseeded = by_prompt([o for o in answered if o.level("seed") == "none"])
    forwarding: Forwarding = "not sent"
    if sent:
        forwarding = "not forwarded" if differing else "forwarded" if len(told) == len(sent) else "not verifiable"
    return SeedUse(
        forwarding=forwarding,
        sent=len(sent),
        echoed=len(told) - differing,
        differing=differing,
        unseeded_varies=any(len({o.text for o in runs}) > 1 for runs in unseeded.values()) if unseeded else None,
    )


_Levels = Mapping[str, Sequence[Observation]]


def _met(runs: Sequence[Observation], met: Callable[[Observation], bool]) -> tuple[bool, str]:
    count = sum(map(met, runs))
    return bool(runs) and count >= SHARE * len(runs), part(count, len(runs), "run")


def _had_in_flight(level: int, run: Observation) -> bool:
    return (run.evidence.in_flight or 0) >= level


def _concurrency(levels: _Levels) -> Exercise:
    said, missed, reached = [], [], False
    for level in sorted(int(x) for x in levels if x.isdecimal() and int(x) > 1):
        met, count = _met(levels[str(level)], partial(_had_in_flight, level))
        reached |= met
        missed += [] if met else [str(level)]
        said.append(f"{level} in flight: {count}" + ("" if met else " (not reached)"))
    return Exercise(reached, "; ".join(said) or "no level above 1", tuple(missed))


def _load(levels: _Levels) -> Exercise:
    on, with_load = _met(levels.get("on", ()), lambda o: (o.evidence.background or 0) > 0)
    off, without = _met(levels.get("off", ()), lambda o: o.evidence.background == 0)
    return Exercise(on and off, f"on: background requests beside {with_load}; off: none beside {without}")


def _prefix(levels: _Levels) -> Exercise:
    warm = [o.evidence.cached_tokens for o in levels.get("warm", ()) if o.evidence.cached_tokens is not None]
    cold = [o.evidence.cached_tokens for o in levels.get("cold", ()) if o.evidence.cached_tokens is not None]
    if not warm or not cold:
        return Exercise(False, "the target does not tell cached tokens of both warm and cold runs")
    hits = sum(n > 0 for n in warm)
    shown = hits >= SHARE * len(levels["warm"]) and median(warm) > median(cold)
    medians = f"median of cached tokens {median(warm):g} warm, {median(cold):g} cold"
    return Exercise(shown, f"{part(hits, len(levels['warm']), 'warm run')} had cached tokens; {medians}")


def _streaming(levels: _Levels) -> Exercise:
    met, count = _met(levels.get("on", ()), lambda o: (o.evidence.stream_events or 0) >= 2)
    return Exercise(met, f"{count} came in two or more events")


def _order(levels: _Levels) -> Exercise:
    prompts = {o.prompt_id for runs in levels.values() for o in runs}
    return Exercise(len(prompts) > 1, f"{counted(len(prompts), 'prompt')} in {counted(len(levels), 'order')}")


def _time(levels: _Levels) -> Exercise:
    spans = []
    for runs in levels.values():
        started = [o.timing.started for o in runs if o.timing is not None]
        if not started:
            return Exercise(False, "no times are recorded")
        spans.append((min(started), max(started)))
    spans.sort()
    apart = all(earlier[1] < later[0] for earlier, later in pairwise(spans))
    length = spans[-1][1] - spans[0][0] if spans else 0.0
    return Exercise(
        apart and len(spans) > 1,
        f"{counted(len(spans), 'block')} over {length:.0f} s" + ("" if apart else ", overlapping"),
    )


_CHECKS: Final[Mapping[str, Callable[[_Levels], Exercise]]] = {
    "concurrency": _concurrency,
    "load": _load,
    "prefix": _prefix,
    "streaming": _streaming,
    "order": _order,
    "time": _time,
}
