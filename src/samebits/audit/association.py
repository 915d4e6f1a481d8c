"""One permutation test: have levels and answers anything to do with each other within strata?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import random_table

TABLE_CELLS: Final = 4_000_000  # cells of tables in memory at once, 32 MB
MOST_CLASSES: Final = 64  # of one prompt, that are followed over its strata: 5 MB for 5,000 deals at two levels


def association(
    codes: NDArray[np.int64],
    prompts: NDArray[np.int64],
    common: NDArray[np.int64],
    levels: NDArray[np.int64],
    strata: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    permutations: int,
) -> float:
    """P-value of the hypothesis that levels and answers have nothing to do with each other within strata.

    Three statistics, since effects are of three kinds. Departures are counted by level over all strata, and
    compared with what the strata let expect (tables pooled as by Mantel and Haenszel): this sees rare departures
    that always fall on the same level. The squares between levels of all classes are summed over strata (Light and
    Margolin 1971): this sees answers that change with the level, each stratum in its own way. The deviations of
    tables from what the strata let expect are summed over the strata of a prompt, and squared (as by Cochran,
    Mantel and Haenszel for classes without order): this sees answers that change with the level alike in all strata
    of a prompt, be there only one run at each level. The smallest p-value counts, compared with its own
    distribution under permutation (Tippett's combination, as by Pesarin).

    Dealing levels out anew within a stratum is drawing a contingency table with the same margins.

    Args:
        codes, prompts: class and prompt of each run, (n,); no class is of two prompts, and no stratum.
        common: the classes that are no departure; may not depend on the levels.
        levels, strata: level and stratum of each run, (n,), not negative; strata are numbered prompt by prompt.
        rng: advanced.
        permutations: the p-value is a multiple of 1/(permutations + 1).
    """
    deals, count = permutations + 1, int(levels.max()) + 1  # deal 0 is the observed one
    squares, departures, expected = np.zeros(deals), np.zeros((deals, count)), np.zeros(count)
    alike = np.zeros(deals)
    repeated = _repeated(codes, prompts)
    order = np.argsort(strata, kind="stable")
    each = np.split(order, np.flatnonzero(np.diff(strata[order])) + 1)
    for prompt, own in groupby(each, lambda members: int(prompts[members[0]])):
        deviations = np.zeros((deals, count, len(repeated[prompt])))
        for members in own:
            here, own_levels, rows = np.unique(levels[members], return_inverse=True, return_counts=True)
            classes, own_codes, columns = np.unique(codes[members], return_inverse=True, return_counts=True)
            if len(rows) < 2 or len(columns) < 2:
                continue  # one level or one answer: every deal gives the same table
            departing = (~np.isin(classes, common)).astype(np.float64)
            expected[here] += rows * (columns @ departing / len(members))
            observed = np.zeros((len(rows), len(columns)))
            np.add.at(observed, (own_levels, own_codes), 1)
            kept = np.flatnonzero(np.isin(classes, repeated[prompt]))
            places = np.searchsorted(repeated[prompt], classes[kept])
            usual = np.outer(rows, columns[kept]) / len(members)
            for some, tables in _dealt(observed, rows, columns, rng, deals):
                squares[some] += np.einsum("dlc,dlc,l->d", tables, tables, 1 / rows)
                departures[some, here] += tables @ departing
                deviations[some, here[:, None], places] += tables[:, :, kept] - usual
        alike += np.einsum("dlc,dlc->d", deviations, deviations)
    met = expected > 0
    pooled = ((departures - expected)[:, met] ** 2 / expected[met]).sum(axis=1)
    smaller = np.minimum.reduce([tail_shares(squares), tail_shares(pooled), tail_shares(alike)])
    return float(np.count_nonzero(smaller <= smaller[0]) / deals)


def _dealt(
    observed: NDArray[np.float64],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    rng: np.random.Generator,
    deals: int,
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The table of a stratum in each deal, (deals, L, C), some at a time: which, and they. The first is as observed."""
    chunk = max(1, TABLE_CELLS // observed.size)
    for at in range(0, deals, chunk):
        some = slice(at, min(at + chunk, deals))
        tables = random_table.rvs(rows, columns, size=some.stop - at, random_state=rng).astype(np.float64)
        if at == 0:
            tables[0] = observed
        yield some, tables


def _repeated(codes: NDArray[np.int64], prompts: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """The classes of each prompt that occur twice or more, in order: the MOST_CLASSES most common ones. One that occurs
    once says nothing about what levels have in common.
    """
    classes, first, counts = np.unique(codes, return_index=True, return_counts=True)
    owners, found = prompts[first], {}
    for prompt in np.unique(prompts):
        own = np.flatnonzero((owners == prompt) & (counts > 1))
        chosen = own[np.lexsort((classes[own], -counts[own]))][:MOST_CLASSES]
        found[int(prompt)] = np.sort(classes[chosen])
    return found


def most_common(codes: NDArray[np.int64], prompts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most common class of each prompt; of equally common ones the lowest. No class is of two prompts."""
    classes, first, counts = np.unique(codes, return_index=True, return_counts=True)
    owners = prompts[first]
    order = np.lexsort((classes, -counts, owners))
    _, best = np.unique(owners[order], return_index=True)
    return np.asarray(classes[order][best], np.int64)


def tail_shares(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each value the share of all values that are at least as large: p-values, (n,).

    Sums of fractions in another order differ in their last digits, so values within 1e-9 of the largest are equal.
    """
    slack = 1e-9 * max(1.0, float(np.abs(statistics).max()))
    smaller = np.searchsorted(np.sort(statistics), statistics - slack, side="left")
    shares: NDArray[np.float64] = 1.0 - smaller / len(statistics)
    return shares
