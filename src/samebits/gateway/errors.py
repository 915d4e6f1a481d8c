"""Errors of the gateway. How each is answered stands in samebits.api.errors.

SamebitsError
├── UpstreamError                 an upstream did not answer as it should
│   ├── UnreachableError          no connection, or it ended before an answer began
│   ├── UpstreamTimeoutError      no answer in time; not sent again, since it may have been carried out
│   ├── MalformedError            an answer that is not of its API
│   │   └── BrokenOffError        an answer that has no end
│   ├── RestingError              it failed so often that it is left alone for a while
│   └── RefusedError              it answered with an error, which is passed on
├── DriftError                    another model or fingerprint answered than before, and the policy refuses that
└── NotValidError                 no attempt gave a text that is valid; holds all of them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from samebits.errors import SamebitsError


class UpstreamError(SamebitsError):
    """An upstream did not answer as it should."""


class UnreachableError(UpstreamError):
    """No connection, or one that ended before the answer began."""


class UpstreamTimeoutError(UpstreamError):
    """No answer in time."""


class MalformedError(UpstreamError):
    """An answer that is not of its API."""


class BrokenOffError(MalformedError):
    """An answer that has no end: also one that ends in order, since a proxy may end what its server did not."""


class RestingError(UpstreamError):
    """The upstream is left alone for a while.

    Attributes:
        seconds: until it is tried again.
    """

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class RefusedError(UpstreamError):
    """An upstream's own error.

    Attributes:
        status: of HTTP.
        body: OpenAI's error body, made of whatever came.
        headers: those that are passed on.
    """

    def __init__(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(str(body["error"]["message"]))
        self.status, self.body, self.headers = status, body, headers

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later, or elsewhere."""
        return self.status == 429 or self.status >= 500


class DriftError(SamebitsError):
    """An upstream answered with another model or fingerprint than before."""


class NotValidError(SamebitsError):
    """No attempt gave a valid answer.

    Attributes:
        attempts: of each its number, seed, text, and what is wrong with it.
    """

    def __init__(self, message: str, attempts: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message)
        self.attempts = tuple(attempts)


def stated(error: Mapping[str, Any], shown: Callable[[str], str]) -> dict[str, Any]:
    """Of another server's error object what is of OpenAI's form: four texts; some servers give numbers as codes.

    Args:
        shown: from a text to what may be shown of it, after JSON was read: an escape may stand for any character.
    """
    given = {name: error.get(name) for name in ("message", "type", "param", "code")}
    return {
        name: shown(value if isinstance(value, str) else str(value))
        for name, value in given.items()
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    }
