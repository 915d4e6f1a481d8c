"""When a request is sent again."""

from __future__ import annotations

import pytest

from samebits.audit.targets.retry import PASSING, RetryPolicy, asked_wait, backoff


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 -0000"}, 60.0),  # -0000 is "no zone"
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, None),  # already over
        ({"retry-after": "Thu, 01 Jan 99999999 00:00:01 GMT"}, None),
        ({"retry-after": "-4"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after-ms": "0", "retry-after": "2"}, 2.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_the_wait_that_is_asked_for(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_wait(headers, now=40.0) == seconds


def test_waits_double_up_to_the_longest() -> None:
    policy = RetryPolicy(first_wait=0.5, longest_wait=3)
    assert [backoff(n, policy) for n in (1, 2, 3, 4, 5)] == [0.5, 1, 2, 3, 3]


def test_what_the_caller_did_wrong_is_not_sent_again() -> None:
    assert not PASSING & {400, 401, 403, 404, 413, 422}
    assert {429, 503} <= PASSING
