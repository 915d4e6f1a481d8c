"""The ids a penalty looks at, kept up as tokens come instead of counted again for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class History:
    """Ids of a growing sequence of tokens.

    Attributes:
        seen: each id in prompt or output once, int64 (S,), in no stated order.
        counts: id → how often it occurs in the output.
    """

    def __init__(self) -> None:
        self.seen: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.counts: Counter[int] = Counter()
        self._known: set[int] = set()
        self._read = 0

    def read(self, tokens: Sequence[int], prompt_length: int) -> None:
        """Takes in the tokens that came since the last call; the sequence only ever grows."""
        new = set(tokens[self._read :]) - self._known
        self._known |= new
        self.seen = np.concatenate([self.seen, np.fromiter(new, np.int64, len(new))])
        self.counts.update(tokens[max(self._read, prompt_length) :])
        self._read = len(tokens)
