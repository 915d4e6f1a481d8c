"""When a request is sent again, and how long that waits. Pure."""

from __future__ import annotations

import email.utils
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Final

NEVER_ANSWERED: Final = 0  # in place of a status: the connection ended before the first byte of an answer
# What says "not now". An answer that was begun or waited for in vain may have been paid, and is not asked for again.
PASSING: Final = frozenset({NEVER_ANSWERED, 408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class RetryPolicy:
    """How patient a client is.

    Attributes:
        attempts: most times that one request is sent.
        first_wait: seconds before the second attempt where the target does not say; doubled for each further one.
        longest_wait: most seconds of such a wait.
        patience: a target that asks for more seconds than this ends the run.
    """

    attempts: int = 6
    first_wait: float = 0.5
    longest_wait: float = 30.0
    patience: float = 600.0


def backoff(attempt: int, policy: RetryPolicy) -> float:
    """Seconds to wait after attempt number ``attempt``, counted from 1, where the target does not say."""
    return min(policy.longest_wait, policy.first_wait * 2.0 ** (attempt - 1))


def asked_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a response asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as a date.

    Args:
        headers: names in any case, if the mapping itself ignores case, or in lower case.
        now: seconds since 1970.

    Returns:
        None where it does not say, says what nobody understands, or names no time to come: who asks at once again,
        and again, does not let a server recover.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) / unit
        except ValueError:
            try:
                date = email.utils.parsedate_to_datetime(text)
            except ValueError:
                continue
            # Without a zone it is UTC, as all dates of HTTP are.
            seconds = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp() - now
        if 0 < seconds < math.inf:
            return seconds
    return None
