"""What an output may be, as the engine sees it: a set of ids for each next token."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt


class Constraint(Protocol):
    """Follows one output. What it allows is a function of what it was made for and of the tokens accepted since.

    Attributes:
        vocab_size: the number of ids it decides about, which is that of the model.
    """

    @property
    def vocab_size(self) -> int: ...

    def fork(self) -> Self:
        """An independent copy in the same state."""
        ...

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Whether each id (V,) may come next; the model's end-of-text ids are among them where the output may end.

        Changes nothing, and the caller does not write to it.

        Raises:
            ConstraintError: a limit on its work is exceeded.
        """
        ...

    def accept(self, token_id: int) -> None:
        """Takes note of a token, which is not an end-of-text id.

        Raises:
            ConstraintError: it is not allowed here, or a limit is exceeded.
        """
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing can follow but the end.

        Raises:
            ConstraintError: a limit is exceeded.
        """
        ...
