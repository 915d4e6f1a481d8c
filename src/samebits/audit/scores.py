"""Log-probabilities of runs that share their beginning: how far they lie apart, and in how many patterns of bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from samebits.audit.divergence import common_prefix
from samebits.audit.observation import Observation
from samebits.audit.ranges import Count, Distance, Nats
from samebits.audit.views import key_of

# Probability that the offered tokens leave to all others; below this it is rounding of float32 log-probabilities.
REST_LEAST: Final = 1e-6

Scores = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ScoreSpread:
    """Log-probabilities of the runs of one prompt, place by place, against the run that stands for the common answer.

    At each place only runs are compared that have the same tokens up to and including it, so the same context.

    Attributes:
        runs: runs with log-probabilities.
        variants: different sequences of log-probabilities, compared by bits.
        spread: for each place, largest minus smallest log-probability, nats, (T,).
        compared: for each place, how many runs were compared, (T,).
        mean_difference: mean of |own − reference| over all runs and places but the reference's own; None without any.
        kl: for each run with its best tokens, mean over places of the divergence from the reference, nats; see
            `lower_kl`. Empty where no best tokens are offered.
    """

    runs: Count
    variants: Count
    spread: tuple[Distance, ...]
    compared: tuple[Count, ...]
    mean_difference: Distance | None
    kl: tuple[Nats, ...]  # by rounding, it may lie a little below 0

    @property
    def largest(self) -> float:
        """The largest spread of any place."""
        return max(self.spread, default=0.0)


def score_spread(observations: Sequence[Observation]) -> ScoreSpread | None:
    """Compare the log-probabilities of one prompt's runs; None with fewer than two runs that have any and tell tokens.

    The reference is the first run with the most common tokens.
    """
    runs = [o for o in observations if o.logprobs is not None and _tokens(o) is not None]
    if len(runs) < 2:
        return None
    tokens = [_tokens(o) or () for o in runs]
    [(common, _)] = Counter(tokens).most_common(1)
    at = tokens.index(common)
    low = np.full(len(common), np.inf)
    high = np.full(len(common), -np.inf)
    compared = np.zeros(len(common), np.int64)
    differences: list[NDArray[np.float64]] = []
    kl: list[float] = []
    reference = np.asarray(runs[at].logprobs, np.float64)
    for i, run in enumerate(runs):
        shared = common_prefix(tokens[i], common)
        own = np.asarray(run.logprobs, np.float64)[:shared]
        np.minimum(low[:shared], own, out=low[:shared])
        np.maximum(high[:shared], own, out=high[:shared])
        compared[:shared] += 1
        if i != at:
            differences.append(_gap(own, reference[:shared]))
            kl += _mean_kl(runs[at], run, shared)
    gaps = np.concatenate(differences)
    return ScoreSpread(
        runs=len(runs),
        variants=len({key_of("logprobs", o) for o in runs}),
        spread=tuple(_gap(high, low).tolist()),
        compared=tuple(compared.tolist()),
        mean_difference=float(gaps.mean()) if gaps.size else None,
        kl=tuple(kl),
    )


def lower_kl(reference: Scores, other: Scores) -> float:
    """Kullback–Leibler divergence of `other` from `reference`, nats: tokens that both offer, and the rest as one.

    Targets tell only their best tokens. Taking all others as one can only lower the divergence, so this is a lower
    bound. A rest below REST_LEAST counts as REST_LEAST.
    """
    if reference == other:
        return 0.0
    p, q = dict(reference), dict(other)
    both = [token for token in p if token in q]
    one, two = (np.exp([scores[token] for token in both]) for scores in (p, q))
    rests = [max(1 - float(x.sum()), REST_LEAST) for x in (one, two)]
    return float(rel_entr(one, two).sum() + rel_entr(*rests))


def _tokens(observation: Observation) -> tuple[object, ...] | None:
    return observation.token_ids if observation.token_ids is not None else observation.tokens


def _gap(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """|a − b|, where two equal infinities are 0 apart."""
    return np.abs(np.subtract(a, b, out=np.zeros_like(a), where=a != b))


def _mean_kl(reference: Observation, run: Observation, shared: int) -> list[float]:
    if reference.top_logprobs is None or run.top_logprobs is None:
        return []
    # The distributions at the first differing token still have the same context.
    places = min(shared + 1, len(reference.top_logprobs), len(run.top_logprobs))
    values = [lower_kl(reference.top_logprobs[t], run.top_logprobs[t]) for t in range(places)]
    return [float(np.mean(values))] if values else []
