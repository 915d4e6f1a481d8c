"""What a refusal is about, in the words of several servers."""

from __future__ import annotations

from typing import Any

import pytest

from samebits.audit.targets.refusal import REFUSING, REMEDIES, is_about_request, refused_extra, refused_part
from samebits.audit.targets.wire import EXTRAS, error_of

ALL = frozenset(EXTRAS)


@pytest.mark.parametrize(
    ("error", "part"),
    [
        ({"param": "top_logprobs", "message": "no"}, "top_logprobs"),
        ({"param": None, "message": "logprobs is not supported"}, "logprobs"),
        ({"param": None, "message": "Unrecognized request argument: return_token_ids"}, "return_token_ids"),
        ({"param": "seed", "message": "?"}, "seed"),
        ({"param": "response_format.json_schema", "message": "?"}, "response_format"),
        ({"message": "json_schema is not supported"}, "response_format"),
        ({"message": "You are not allowed to request logprobs from this model"}, "logprobs"),
        ({"param": "temperature", "message": "Unsupported value: 'temperature' does not support 0"}, "temperature"),
        ({"message": "`top_p` must be 1 where logprobs are asked for"}, "top_p"),
        ({"message": "bad request"}, None),
        ({"message": "the model seed-oss is not here"}, None),
        ({"message": "this model takes no messages as a stream"}, None),
        ({"param": "stream", "message": "?"}, "stream"),
        ({"message": "reseeding failed"}, None),
        ({"code": "model_not_found", "message": "Project `p` does not have access to model `m`"}, "model"),
        ({"code": "context_length_exceeded", "message": "Please reduce max_tokens"}, "messages"),
        ({"code": 400, "type": "exceed_context_size_error", "message": "exceeds the context size"}, "messages"),
        ({"code": "content_filter", "param": "prompt", "message": "The response was filtered"}, "messages"),
        ({"message": "It exceeds the model's maximum context length of 2048 tokens."}, "messages"),
        ({"param": "input_tokens", "message": "reduce the number of requested output tokens"}, "messages"),
        ({"message": "'max_tokens' is too large: the model's maximum context length is 2048"}, "max_tokens"),
        ({"code": 400, "type": "BadRequestError", "message": "no"}, None),
        ({"param": 3, "message": None}, None),
        ({}, None),
    ],
)
def test_the_part_that_is_named(error: dict[str, Any], part: str | None) -> None:
    assert refused_part(error, "seed-oss") == part


def test_fields_that_were_not_expected_are_named_by_their_place() -> None:
    said = b'{"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs"}]}'
    assert refused_part(error_of(422, said), "m") == "seed"


def test_an_error_in_a_list_of_one_is_read() -> None:
    said = b'[{"error": {"code": 400, "message": "Unknown name \\"return_token_ids\\"", "status": "INVALID_ARGUMENT"}}]'
    assert error_of(400, said)["status"] == "INVALID_ARGUMENT"
    assert refused_part(error_of(400, said), "m") == "return_token_ids"
    assert error_of(400, b"[1, 2]")["message"] == "[1, 2]"


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("status", sorted(REFUSING))
def test_an_extra_that_is_named_is_left_out(extra: str, status: int) -> None:
    error = {"message": f"unknown field {extra}"}
    assert refused_extra(status, error, ALL, "m") == extra
    assert refused_extra(status, error, ALL - {extra}, "m") is None
    assert is_about_request(status, error, "m")


def test_without_a_name_the_least_common_one_goes_first() -> None:
    error = {"message": "bad request"}
    assert refused_extra(400, error, ALL, "m") == EXTRAS[0]
    assert refused_extra(400, error, frozenset({"seed"}), "m") == "seed"
    assert refused_extra(400, error, frozenset(), "m") is None
    for status in (401, 403, 404, 500, 503):
        assert refused_extra(status, error, ALL, "m") is None


@pytest.mark.parametrize("part", REMEDIES)
def test_what_cannot_be_left_out_costs_no_extra(part: str) -> None:
    assert refused_extra(400, {"param": part, "message": "no"}, ALL, "m") is None


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_in_trouble_is_no_refusal(status: int) -> None:
    assert not is_about_request(status, {"message": "overloaded"}, "m")
