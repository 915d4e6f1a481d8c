"""How many best tokens are asked for after a refusal, in the words of several servers."""

from __future__ import annotations

from typing import Any

import pytest

from samebits.audit.targets import Ask
from samebits.audit.targets.best_tokens import fewer_best_tokens, most_refusals
from samebits.audit.targets.wire import EXTRAS

VLLM = "Requested sample logprobs of {}, which is greater than max allowed: {} (parameter=logprobs, value={})"


def fewer(asked: int, message: str, *, status: int = 400, named_before: bool = False, **fields: Any) -> int | None:
    error = {"message": message, **fields}
    return fewer_best_tokens(asked, status, error, "gpt-4", named_before=named_before)


@pytest.mark.parametrize(
    ("asked", "message", "found"),
    [
        (10, VLLM.format(10, 3, 10), 3),
        (5, VLLM.format(5, 0, 5), 0),
        (20, "Invalid top_logprobs value, the valid range of top_logprobs is [0, 8]", 8),
        (20, "InvalidParameter: Invalid 'top_logprobs': 20. Expected an integer in range [0, 5]", 5),
        (5, "5 is greater than the maximum of 1 - 'logprobs'", 1),
        (20, "top_logprobs: Input should be less than or equal to 5", 5),
        (20, "top_logprobs of gpt-4 must be 0-12.", 12),
        (5, "top_logprobs must be at most 2 for model gpt-4", 2),
        (20, "top_logprobs must be in [0, 20)", 5),  # the limit is not a number below
        (20, "top_logprobs is out of range", 5),
        (5, "top_logprobs is out of range", 1),
        (1, "top_logprobs is out of range", 0),
        (20, "20 logprobs are too many", 5),
    ],
)
def test_the_limit_that_is_named_or_the_next_step(asked: int, message: str, found: int) -> None:
    assert fewer(asked, message) == found


def test_a_limit_that_is_refused_too_is_stepped_down() -> None:
    assert fewer(10, "top_logprobs must be less than 6") == 6
    assert fewer(6, "top_logprobs must be less than 6", named_before=True) == 5
    assert fewer(4, "top_logprobs must be less than 3", named_before=True) == 1


@pytest.mark.parametrize(
    "message",
    [
        "Unrecognized request argument: top_logprobs",
        "top_logprobs is not supported",
        "You are not allowed to request logprobs from this model",
        "logprobs must be false",
        "logprobs is not supported when using response_format parameter",
        "seed must be below 3",
        "bad request",
    ],
)
def test_a_refusal_of_the_part_itself_is_not_about_the_number(message: str) -> None:
    assert fewer(5, message) is None


def test_what_asks_for_none_or_fails_for_another_reason_is_left_alone() -> None:
    assert fewer(0, "top_logprobs must be at most 2") is None
    assert fewer(5, "top_logprobs must be at most 2", status=503) is None
    assert fewer(5, "top_logprobs broke", status=500) is None
    assert fewer(5, "top_logprobs must be at most 2", status=500) == 2, "the control"
    assert fewer(5, "no", param="top_logprobs") == 1, "the control"


@pytest.mark.parametrize("asked", range(1, 21))
@pytest.mark.parametrize("named", range(20))
def test_any_sequence_of_refusals_ends_within_the_bound(asked: int, named: int) -> None:
    ask = Ask(messages=(), max_tokens=1, top_logprobs=asked)
    refusals, now, before = 0, asked, False
    while now:
        found = fewer(now, f"top_logprobs: {named} at most, and not even that", named_before=before)
        assert found is not None
        assert found < now
        refusals, now, before = refusals + 1, found, True
    others = len({"return_token_ids", "logprobs", "top_logprobs"}) + 1
    assert refusals <= most_refusals((ask,)) - others
    assert most_refusals((Ask(messages=(), max_tokens=1),)) == 2 < len(EXTRAS)
