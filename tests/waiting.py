"""Waiting for what must come. A busy machine may take its time over everything; what hangs fails in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 600.0  # for anything that must happen; no passing test comes near it


def wait_until(condition: Callable[[], object], said: str = "it does not happen") -> None:
    """Returns when the condition holds, and fails with these words where it never does."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, said
        time.sleep(0.005)
