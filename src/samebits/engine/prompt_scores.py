"""Log-probabilities of a prompt's own tokens. A row of logits is the same whether its token was read or generated
(docs/numerics.md, section 1), so these are the bits that generation would have given.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from samebits import kernels
from samebits.engine.top_logprobs import TopLogprob, score_rows
from samebits.errors import NumericsError, SamebitsError

Floats = npt.NDArray[np.float32]


class PromptScores:
    """Those of one prompt, filled as its rows are computed; the choices of a request share it.

    Attributes:
        top: how many best ids to report for each token.
        logprobs: of the tokens from the second on, as far as they are known.
        top_logprobs: the best ids at the same places.
        error: why some are not numbers, if they are not.
    """

    def __init__(self, prompt: Sequence[int], top: int) -> None:
        self.top = top
        self.logprobs: list[float] = []
        self.top_logprobs: list[tuple[TopLogprob, ...]] = []
        self.error: SamebitsError | None = None
        self._targets = prompt[1:]

    @property
    def complete(self) -> bool:
        """Whether every token has its own."""
        return len(self.logprobs) == len(self._targets)

    def wanted(self, first: int, count: int) -> range:
        """Positions whose logits are needed, of those that a step computes: ``first`` and the next ``count`` - 1."""
        return range(max(first, len(self.logprobs)), min(first + count, len(self._targets)))

    def add(self, ctx: kernels.Context, logits: Floats) -> None:
        """Takes the logits (R, V) of the positions that were wanted."""
        start = len(self.logprobs)
        targets = self._targets[start : start + len(logits)]
        if not np.isfinite(logits).all():
            last = start + len(logits)
            self.error = NumericsError(f"logits within the first {last} tokens are not finite: the model overflowed")
        for scored in score_rows(ctx, logits, targets, [self.top] * len(targets)):
            self.logprobs.append(scored.logprob)
            self.top_logprobs.append(scored.top)

    def array(self) -> Floats:
        """The log-probabilities, (prompt length - 1,) float32."""
        return np.asarray(self.logprobs, np.float32)
