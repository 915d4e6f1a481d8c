"""One forward step: rows of several sequences, and where their keys and values live."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Batch:
    """Rows of a step. T rows, S sequences, R rows whose logits are wanted.

    Attributes:
        token_ids: (T,) int32.
        positions: (T,) int32, consecutive within a sequence. Row t attends keys 0 … positions[t].
        slots: (T,) int64, page · page_size + offset: where the row's key and value are stored.
        seq_starts: (S+1,) int32, first row of each sequence, and T.
        block_tables: (S, pages) int32, pages of each sequence in order; entries past its last page are unused.
        logit_rows: (R,) int32, indices into the rows, in any order.
    """

    token_ids: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int64]
    seq_starts: npt.NDArray[np.int32]
    block_tables: npt.NDArray[np.int32]
    logit_rows: npt.NDArray[np.int32]
