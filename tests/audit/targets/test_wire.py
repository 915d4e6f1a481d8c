"""OpenAI's chat format: what is sent, and what is read out of answers, whole and in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samebits.audit.targets.target import Ask
from samebits.audit.targets.wire import (
    EXTRAS,
    EventSplitter,
    MalformedError,
    StreamFailedError,
    StreamJoiner,
    body_digest,
    body_of,
    error_of,
    failure_name,
    read_json,
    refused_extra,
    reply_of,
    wanted_extras,
)

MESSAGES = ({"role": "user", "content": "Hi"},)
FULL = Ask(messages=MESSAGES, max_tokens=9, seed=5, top_logprobs=3, schema={"type": "object"}, stream=True)


def response(**changes: Any) -> dict[str, Any]:
    tokens = [
        {
            "token": "a",
            "logprob": -0.5,
            "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}],
        },
        {"token": " b", "logprob": 0, "top_logprobs": []},
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "a b"},
        "logprobs": {"content": tokens},
        "finish_reason": "stop",
        "token_ids": [4, 5],
    }
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "system_fingerprint": "fp",
        "choices": [choice],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 6}},
        "samebits": {"seed": 5, "cached_prompt_tokens": 6, "prefill_chunks": 2, "level": "portable"},
    } | changes


def test_a_body_holds_what_is_asked_and_accepted() -> None:
    body = json.loads(body_of(FULL, "m", frozenset(EXTRAS), "max_tokens"))
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "temperature": 0.0,
        "seed": 5,
        "logprobs": True,
        "top_logprobs": 3,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}},
        },
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    plain = json.loads(body_of(FULL, "m", frozenset(), "max_completion_tokens"))
    assert plain.keys() == {"model", "messages", "max_completion_tokens", "temperature", "stream"}


def test_property_order_of_a_schema_is_kept() -> None:
    schema = {"type": "object", "properties": {"zulu": {}, "alpha": {}}}
    sent = body_of(Ask(messages=MESSAGES, max_tokens=1, schema=schema), "m", frozenset(EXTRAS), "max_tokens")
    assert sent.index(b"zulu") < sent.index(b"alpha")


def test_only_needed_extras_are_wanted() -> None:
    assert wanted_extras((FULL,)) == set(EXTRAS)
    assert wanted_extras((Ask(messages=MESSAGES, max_tokens=1),)) == {"return_token_ids"}


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ({"param": "top_logprobs", "message": "no"}, "top_logprobs"),
        ({"param": None, "message": "logprobs is not supported"}, "logprobs"),
        ({"param": None, "message": "Unrecognized request argument: return_token_ids"}, "return_token_ids"),
        ({"param": "seed", "message": "?"}, "seed"),
        ({"message": "bad request"}, "return_token_ids"),  # names none: the least common one goes first
    ],
)
def test_a_refusal_is_understood(error: dict[str, Any], found: str) -> None:
    assert refused_extra(error, frozenset(EXTRAS)) == found


def test_a_refusal_with_no_extras_left_is_about_none() -> None:
    assert refused_extra({"message": "seed"}, frozenset()) is None


def test_a_response_is_read() -> None:
    reply = reply_of(response())
    assert (reply.text, reply.token_ids, reply.tokens) == ("a b", (4, 5), ("a", " b"))
    assert reply.logprobs == (-0.5, 0.0)
    assert all(type(x) is float for x in reply.logprobs)
    assert reply.top_logprobs == ((("a", -0.5), ("b", -1.0)), ())
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (7, 6, 2)
    assert (reply.fingerprint, reply.finish_reason, reply.seed_echoed) == ("fp", "stop", 5)
    assert reply.error is None


def test_ids_beside_log_probabilities_are_read() -> None:
    """As llama.cpp writes them."""
    entries = [{"id": 8, "token": "a", "logprob": -1.0, "top_logprobs": []}]
    choice = {"message": {"content": "a"}, "logprobs": {"content": entries}}
    assert reply_of(response(choices=[choice])).token_ids == (8,)
    del entries[0]["id"]
    assert reply_of(response(choices=[choice])).token_ids is None


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"token": "a"}]}}]},
        {"choices": [{"message": {"content": "a"}, "logprobs": {"content": []}, "token_ids": [1]}]},
    ],
)
def test_what_is_no_answer_is_malformed(broken: object) -> None:
    with pytest.raises(MalformedError):
        reply_of(broken)


def test_absent_parts_are_none() -> None:
    reply = reply_of({"choices": [{"message": {"content": None}}]})
    assert reply.text == ""
    assert {reply.token_ids, reply.logprobs, reply.fingerprint, reply.cached_tokens, reply.seed_echoed} == {None}


def test_the_digest_leaves_out_what_is_volatile_and_nothing_else() -> None:
    digest = body_digest(response())
    usage = response()["usage"] | {"prompt_tokens_details": {"cached_tokens": 0}}
    ours = response()["samebits"] | {"cached_prompt_tokens": 0, "prefill_chunks": 1, "receipt_id": "r"}
    assert body_digest(response(id="y", created=2, usage=usage, samebits=ours, timings={"ms": 3})) == digest
    other = response()["choices"][0] | {"finish_reason": "length"}
    for change in ({"choices": [other]}, {"system_fingerprint": "fp2"}, {"model": "n"}, {"odd": 1}):
        assert body_digest(response(**change)) != digest, change


def test_lone_surrogates_are_read() -> None:
    body = read_json(b'{"choices": [{"message": {"content": "\\ud83d"}}]}')
    assert reply_of(body).text == "\ud83d"
    assert reply_of(body).body is None  # no canonical form
    with pytest.raises(MalformedError):
        read_json(b"<html>")


def test_errors_of_any_shape_have_a_steady_name() -> None:
    openai = error_of(429, b'{"error": {"message": "wait 3 s", "type": "t", "code": "rate_limit", "param": null}}')
    assert failure_name(429, openai) == "HTTP 429 rate_limit"
    assert failure_name(500, error_of(500, b"<html>oops")) == "HTTP 500"
    assert error_of(500, b"<html>oops")["message"] == "<html>oops"
    assert failure_name(422, error_of(422, b'{"detail": "no"}')) == "HTTP 422"


# ---- streams ---------------------------------------------------------------------------------------------------------


def chunks_of(whole: dict[str, Any]) -> list[dict[str, Any]]:
    common = {k: v for k, v in whole.items() if k not in ("choices", "usage", "samebits")}
    common["object"] = "chat.completion.chunk"
    [choice] = whole["choices"]
    pieces: list[dict[str, Any]] = [{"index": 0, "delta": {"role": "assistant", "content": ""}}]
    for text, entry, token in zip(("a", " b"), choice["logprobs"]["content"], choice["token_ids"], strict=True):
        pieces.append({"index": 0, "delta": {"content": text}, "logprobs": {"content": [entry]}, "token_ids": [token]})
    pieces.append({"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None})
    out = [common | {"choices": [piece]} for piece in pieces]
    out[-1]["samebits"] = whole["samebits"]
    return [*out, common | {"choices": [], "usage": whole["usage"]}]


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
def test_a_stream_joins_to_the_whole_response(size: int, end: str) -> None:
    events = [f"data: {json.dumps(chunk)}" for chunk in chunks_of(response())]
    data = end.join([": a comment", *events, "data: [DONE]", ""]).encode()
    splitter, joiner = EventSplitter(), StreamJoiner()
    for start in range(0, len(data), size):
        for event in splitter.feed(data[start : start + size]):
            joiner.add(event)
    assert reply_of(joiner.whole()) == reply_of(response())
    assert joiner.events == 2


def test_a_stream_without_its_end_is_broken() -> None:
    joiner = StreamJoiner()
    for chunk in chunks_of(response()):
        joiner.add(json.dumps(chunk).encode())
    with pytest.raises(MalformedError, match="DONE"):
        joiner.whole()


def test_an_error_in_a_stream_is_one() -> None:
    joiner = StreamJoiner()
    with pytest.raises(StreamFailedError, match="boom"):
        joiner.add(b'{"error": {"message": "boom"}}')
    with pytest.raises(MalformedError):
        joiner.add(b"[]")
