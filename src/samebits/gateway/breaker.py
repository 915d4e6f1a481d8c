"""When an upstream that keeps failing is left alone. A state and a clock, nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """Counts failures in a row. After ``failures`` of them nothing is sent for ``seconds``; then one request is let
    through, and what becomes of it decides.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = failures, seconds, clock
        self._failed = 0
        self._opened: float | None = None
        self._trying = False

    def wait(self) -> float:
        """Seconds until something may be sent; 0 means now, and takes the one place there is for a trial."""
        if self._opened is None:
            return 0.0
        left = self._opened + self._seconds - self._clock()
        if left > 0 or self._trying:
            return max(left, 0.1)
        self._trying = True
        return 0.0

    @property
    def is_open(self) -> bool:
        """Whether it is left alone, or on trial."""
        return self._opened is not None

    def succeeded(self) -> None:
        """An answer came."""
        self._failed, self._opened, self._trying = 0, None, False

    def failed(self) -> None:
        """None came, or one that says that the upstream is at fault."""
        self._failed += 1
        if self._trying or self._failed >= self._most:
            self._opened = self._clock()
        self._trying = False

    def abandoned(self) -> None:
        """What was sent was given up by us: that says nothing."""
        self._trying = False
