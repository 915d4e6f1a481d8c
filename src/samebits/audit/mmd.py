"""Have two sets of answers the same distribution? Maximum mean discrepancy with a Hamming kernel (Gao et al. 2024)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from samebits.errors import InputError

# The most characters or tokens of an answer that are compared, as in the paper.
PREFIX: Final = 1000
PERMUTATIONS: Final = 2000

# A text, or token ids.
Answer = str | tuple[int, ...]


@dataclass(frozen=True)
class TwoSamples:
    """The answers of two sides to one prompt, K different ones.

    Attributes:
        kernel: similarity of any two, (K, K), float64; 1 on the diagonal.
        first, second: how often each side gave each, (K,), int64; at least two answers a side.
    """

    kernel: NDArray[np.float64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]

    @property
    def mmd2(self) -> float:
        """The unbiased estimate of the squared discrepancy; around 0, also below it, where nothing differs."""
        return float(mmd2(self.kernel, self.first[None], self.first + self.second)[0])

    def dealt(self, rng: np.random.Generator, deals: int) -> NDArray[np.float64]:
        """`mmd2` where the answers are dealt out to the two sides anew, (deals,)."""
        both = self.first + self.second
        first = rng.multivariate_hypergeometric(both, int(self.first.sum()), size=deals, method="marginals")
        return mmd2(self.kernel, first, both)


@dataclass(frozen=True)
class MmdTest:
    """Result over all prompts; the statistic is the mean of the prompts' estimates.

    Attributes:
        mmd2: the statistic.
        p: share of the deals, the observed one included, whose statistic is at least as large.
        prompt_p: the same for each prompt alone.
    """

    mmd2: float
    p: float
    prompt_p: tuple[float, ...]

    @property
    def shift(self) -> float:
        """The effect: if a share of the runs moved to a wholly different answer, this would be that share.

        A shift of share d to an answer whose places differ in a share h has MMD² = 2·d²·h, so this is √(MMD²/2) = d·√h.
        """
        return math.sqrt(max(self.mmd2, 0.0) / 2)


def two_samples(first: Sequence[Answer], second: Sequence[Answer], prefix: int = PREFIX) -> TwoSamples:
    """The answers of two sides to one prompt, counted.

    Raises:
        InputError: a side has fewer than two answers, or the prefix is below 1.
    """
    if min(len(first), len(second)) < 2:
        raise InputError("a side has fewer than two answers", field="answers", remedy="Give at least two of each.")
    one, two = Counter(first), Counter(second)
    answers = sorted({*one, *two})
    return TwoSamples(
        hamming_kernel(answers, prefix),
        np.array([one[x] for x in answers], np.int64),
        np.array([two[x] for x in answers], np.int64),
    )


def hamming_kernel(answers: Sequence[Answer], prefix: int = PREFIX) -> NDArray[np.float64]:
    """Share of places at which two answers agree, (K, K).

    Places are counted up to the longest answer or the prefix, whichever is shorter; a shorter answer is filled up with
    a sign of its own. This is the kernel of the paper, a sum over places, divided by their number, so that prompts with
    long answers do not outweigh the others.

    Raises:
        InputError: the prefix is below 1.
    """
    if prefix < 1:
        raise InputError(f"{prefix} compares nothing", field="prefix", remedy="Give at least 1.")
    length = min(prefix, max(map(len, answers), default=0))
    if length == 0 or len(answers) < 2:
        return np.ones((len(answers), len(answers)))
    places = np.full((len(answers), length), -1, np.int64)
    numbers: dict[object, int] = {}  # of characters or ids, which a target may number as it likes
    for row, answer in zip(places, answers, strict=True):
        items = [numbers.setdefault(x, len(numbers)) for x in answer[:length]]
        row[: len(items)] = items
    return np.asarray(1.0 - squareform(pdist(places, "hamming")), np.float64)


def mmd2(kernel: NDArray[np.float64], first: NDArray[np.int64], both: NDArray[np.int64]) -> NDArray[np.float64]:
    """Unbiased estimate of squared MMD (Gretton et al. 2012) from counts.

    Args:
        kernel: (K, K).
        first: counts of the one side, (deals, K); each row has the same sum.
        both: counts of both sides together, (K,).
    """
    one = first.astype(np.float64)
    two = both - one
    m, n = float(one[0].sum()), float(two[0].sum())
    towards_one = one @ kernel
    within_one = (np.einsum("dk,dk->d", towards_one, one) - m) / (m * (m - 1))
    within_two = (np.einsum("dk,dk->d", two @ kernel, two) - n) / (n * (n - 1))
    across = np.einsum("dk,dk->d", towards_one, two) / (m * n)
    estimate: NDArray[np.float64] = within_one + within_two - 2 * across
    return estimate


def mmd_test(samples: Sequence[TwoSamples], *, seed: int, permutations: int = PERMUTATIONS) -> MmdTest:
    """Test over prompts: within each, the answers are dealt out to the two sides anew.

    Equal samples and seeds give equal results.

    Raises:
        InputError: no samples.
    """
    if not samples:
        raise InputError("no prompt with two answers on both sides", field="samples", remedy="Repeat each prompt.")
    total = np.zeros(permutations + 1)
    prompt_p = []
    for number, sample in enumerate(samples):
        rng = np.random.default_rng([seed, number])
        own = np.concatenate([[sample.mmd2], sample.dealt(rng, permutations)])
        prompt_p.append(_share_at_least(own))
        total += own
    return MmdTest(float(total[0] / len(samples)), _share_at_least(total), tuple(prompt_p))


def power(
    samples: Sequence[TwoSamples], shift: float, *, seed: int, level: float, simulations: int, permutations: int = 199
) -> float:
    """Chance that the test would have seen a shift, by simulation.

    Both sides are drawn from the answers of both; then each answer of the second side moves, with this chance, to an
    answer that agrees with no other in any place.
    """
    rng = np.random.default_rng([seed, round(shift * 1e6)])
    alarms = 0
    for _ in range(simulations):
        drawn = [_with_shift(sample, shift, rng) for sample in samples]
        alarms += mmd_test(drawn, seed=int(rng.integers(2**32)), permutations=permutations).p <= level
    return alarms / simulations


def _with_shift(sample: TwoSamples, shift: float, rng: np.random.Generator) -> TwoSamples:
    both = sample.first + sample.second
    shares = both / both.sum()
    size = len(both) + 1
    kernel = np.eye(size)
    kernel[:-1, :-1] = sample.kernel
    moved = rng.binomial(int(sample.second.sum()), shift)
    first = np.append(rng.multinomial(int(sample.first.sum()), shares), 0)
    second = np.append(rng.multinomial(int(sample.second.sum()) - moved, shares), moved)
    return TwoSamples(kernel, first.astype(np.int64), second.astype(np.int64))


def _share_at_least(values: NDArray[np.float64]) -> float:
    """Share of all values that are at least as large as the first, itself included, but for 1e-9 of rounding."""
    return float(np.count_nonzero(values >= values[0] - 1e-9) / len(values))
