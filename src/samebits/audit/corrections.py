"""Many tests at once: p-values adjusted, so that the stated level holds for all of them together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import false_discovery_control

from samebits.errors import InputError


def holm(pvalues: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values (Holm 1979): rejecting those up to α, the chance of any false one is at most α.

    Raises:
        InputError: a value is outside [0, 1].
    """
    _check(pvalues)
    order = sorted(range(len(pvalues)), key=lambda i: pvalues[i])
    adjusted = [0.0] * len(pvalues)
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(pvalues) - rank) * pvalues[i]))
        adjusted[i] = running
    return tuple(adjusted)


def benjamini_hochberg(pvalues: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values (Benjamini and Hochberg 1995): among those up to α, a share of at most α is false on average.

    Raises:
        InputError: a value is outside [0, 1].
    """
    _check(pvalues)
    return tuple(map(float, false_discovery_control(pvalues))) if len(pvalues) else ()


def _check(pvalues: Sequence[float]) -> None:
    values = np.asarray(pvalues, float)
    if values.size and not (np.all(values >= 0) and np.all(values <= 1)):
        raise InputError(f"{list(pvalues)} are not all in [0, 1]", field="pvalues", remedy="Give probabilities.")
