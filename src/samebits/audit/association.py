"""One permutation test: have levels and answers anything to do with each other within strata?"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import random_table

TABLE_CELLS: Final = 4_000_000  # cells of tables in memory at once, 32 MB


def association(
    codes: NDArray[np.int64],
    common: NDArray[np.int64],
    levels: NDArray[np.int64],
    strata: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    permutations: int,
) -> float:
    """P-value of the hypothesis that levels and answers have nothing to do with each other within strata.

    Two statistics, since effects are of two kinds. Departures are counted by level over all strata and compared with
    what the strata let expect (tables pooled as by Mantel and Haenszel): this sees rare departures that always fall on
    the same level. The squares between levels of all classes are summed over strata (Light and Margolin 1971): this
    sees answers that change with the level, each prompt in its own way. The smaller p-value counts, compared with its
    own distribution under permutation (Tippett's combination, as by Pesarin).

    Dealing levels out anew within a stratum is drawing a contingency table with the same margins.

    Args:
        codes: class of each run, (n,); no class is of two prompts.
        common: the classes that are no departure; may not depend on the levels.
        levels, strata: level and stratum of each run, (n,), not negative.
        rng: advanced.
        permutations: the p-value is a multiple of 1/(permutations + 1).
    """
    deals, count = permutations + 1, int(levels.max()) + 1  # deal 0 is the observed one
    squares, departures, expected = np.zeros(deals), np.zeros((deals, count)), np.zeros(count)
    order = np.argsort(strata, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(strata[order])) + 1):
        if np.all(codes[members] == codes[members[0]]):
            continue  # one answer: every deal gives the same table
        here, own_levels, rows = np.unique(levels[members], return_inverse=True, return_counts=True)
        classes, own_codes, columns = np.unique(codes[members], return_inverse=True, return_counts=True)
        if len(rows) < 2:
            continue
        departing = (~np.isin(classes, common)).astype(np.float64)
        expected[here] += rows * (columns @ departing / len(members))
        observed = np.zeros((len(rows), len(columns)))
        np.add.at(observed, (own_levels, own_codes), 1)
        chunk = max(1, TABLE_CELLS // observed.size)
        for at in range(0, deals, chunk):
            some = slice(at, min(at + chunk, deals))
            tables = random_table.rvs(rows, columns, size=some.stop - at, random_state=rng).astype(np.float64)
            if at == 0:
                tables[0] = observed
            squares[some] += np.einsum("dlc,dlc,l->d", tables, tables, 1 / rows)
            departures[some, here] += tables @ departing
    met = expected > 0
    pooled = ((departures - expected)[:, met] ** 2 / expected[met]).sum(axis=1)
    smaller = np.minimum(tail_shares(squares), tail_shares(pooled))
    return float(np.count_nonzero(smaller <= smaller[0]) / deals)


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
