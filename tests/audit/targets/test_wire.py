"""OpenAI's chat format: what is sent, and what is read out of answers, whole and in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from samebits.audit.observation import Observation, from_line, to_line
from samebits.audit.targets.target import Ask, Reply
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
    gateway = {"route": "m", "upstream_id": "a", "cache": "bypass"}
    through = {"samebits": ours | {"gateway": gateway}}
    again = {"samebits": ours | {"gateway": gateway | {"upstream_id": "b", "cache": "miss"}}}
    assert body_digest(response(**through)) == body_digest(response(**again))
    elsewhere = {"samebits": ours | {"gateway": gateway | {"route": "n"}}}
    assert body_digest(response(**through)) != body_digest(response(**elsewhere))
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


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"a":\ndata: 1}\n\ndata: [DONE]\n\n',  # an event of two lines
        b'event: message\nid: 1\ndata:{"a":\r\ndata:1}\r\n\r\n: ping\r\n\r\ndata: [DONE]',  # no end of the last one
    ],
)
def test_events_of_several_lines_and_without_an_end(data: bytes) -> None:
    splitter = EventSplitter()
    events = [*splitter.feed(data), *splitter.end()]
    assert list(map(read_json, events[:-1])) == [{"a": 1}]
    assert events[-1] == b"[DONE]"


# ---- what nobody expects ---------------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    None, 1, -1.5, True, "x", "", [], {}, [1], ["a"], [None], {"a": 1}, [[1]], 10**30, [{}], [{"token": None}],
)  # fmt: skip


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places of a nested value."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, x in inner:
        yield from places(x, (*place, name))


def with_odd(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    if not place:
        return odd
    copied = json.loads(json.dumps(value))
    inner = copied
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = odd
    return copied


def check(reply: Callable[[], Reply]) -> bool:
    """Whether there is a reply; one can be noted in a journal and read back."""
    try:
        found = reply()
    except (MalformedError, StreamFailedError):
        return False
    fields = ("text", "token_ids", "tokens", "logprobs", "top_logprobs", "finish_reason", "body", "fingerprint")
    observation = Observation(target="t", prompt_id="p", run=0, **{name: getattr(found, name) for name in fields})
    assert from_line(to_line(observation)) == observation
    return True


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_response_is_a_reply_or_malformed(odd: Any) -> None:
    whole = response()
    found = [check(lambda place=place: reply_of(with_odd(whole, place, odd))) for place in places(whole)]  # type: ignore[misc]
    assert {True, False} == set(found), "the control: some are replies and some are not"


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_event_is_a_reply_or_malformed(odd: Any) -> None:
    chunks = chunks_of(response())

    def joined(at: int, place: tuple[Any, ...]) -> Reply:
        joiner = StreamJoiner()
        for i, chunk in enumerate(chunks):
            joiner.add(json.dumps(with_odd(chunk, place, odd) if i == at else chunk).encode())
        joiner.add(b"[DONE]")
        return reply_of(joiner.whole())

    found = [
        check(lambda at=at, place=place: joined(at, place))  # type: ignore[misc]
        for at, chunk in enumerate(chunks)
        for place in places(chunk)
    ]
    assert {True, False} == set(found), "the control"


def test_a_content_that_is_no_text_is_not_an_empty_answer() -> None:
    for content in (5, {"text": "a"}, True):
        with pytest.raises(MalformedError, match="content"):
            reply_of({"choices": [{"message": {"content": content}}]})
    assert reply_of({"choices": [{"message": {"content": None}}]}).text == ""


def test_a_page_is_not_cut_before_a_key_in_it_can_be_found() -> None:
    assert error_of(500, b"x" * 290 + b"sk-sentinel-5d0c77aa")["message"].endswith("sk-sentinel-5d0c77aa")
    assert len(error_of(500, b"x" * 10**6)["message"]) == 10_000
