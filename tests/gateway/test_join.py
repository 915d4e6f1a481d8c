"""Streams and whole answers are two forms of one thing; events are read whatever pieces they come in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.gateway.errors import MalformedError
from samebits.gateway.events import DONE, plain_event, read_events
from samebits.gateway.join import Joiner, chunks_of, without_usage
from samebits.ledger.routes import CHAT, COMPLETIONS

texts = st.text("ab ñ😀\n", max_size=8)
entries = st.lists(st.fixed_dictionaries({"token": texts, "logprob": st.floats(-9, 0)}), min_size=1, max_size=3)
calls = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text("c1", min_size=1, max_size=3),
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": texts, "arguments": texts}),
        }
    ),
    min_size=1,
    max_size=3,
)
messages = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": texts, "refusal": st.none()}, optional={"tool_calls": calls}
)
usages = st.fixed_dictionaries({"prompt_tokens": st.integers(0, 9), "completion_tokens": st.integers(0, 9)})


def whole_of(path: str, parts: list[Any], logprobs: Any, usage: Any) -> dict[str, Any]:
    name = "message" if path == CHAT else "text"
    choices = [
        {"index": i, name: part, "logprobs": {"content": logprobs} if logprobs else None, "finish_reason": "stop"}
        for i, part in enumerate(parts)
    ]
    kind = "chat.completion" if path == CHAT else "text_completion"
    answer = {"id": "i", "object": kind, "created": 1, "model": "m", "system_fingerprint": "f", "choices": choices}
    return answer | {"usage": usage, "prompt_token_ids": [1, 2], "samebits": {"level": "run", "warnings": []}}


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    joiner = Joiner()
    for chunk in chunks:
        joiner.add(chunk)
    joiner.done = True
    return joiner.whole()


@settings(max_examples=150)
@given(st.lists(messages, min_size=1, max_size=3), st.none() | entries, usages)
def test_a_chat_in_chunks_is_the_same_chat(parts: list[Any], logprobs: Any, usage: Any) -> None:
    whole = whole_of(CHAT, parts, logprobs, usage)
    assert joined(list(chunks_of(CHAT, whole, usage=True))) == whole
    plain = list(chunks_of(CHAT, whole, usage=False))
    assert all("usage" not in chunk for chunk in plain)
    assert joined(plain) == {name: value for name, value in whole.items() if name != "usage"}
    stripped = [kept for chunk in chunks_of(CHAT, whole, usage=True) if (kept := without_usage(chunk)) is not None]
    assert stripped == plain


@settings(max_examples=60)
@given(st.lists(texts, min_size=1, max_size=3), st.none() | entries, usages)
def test_a_completion_in_chunks_is_the_same_completion(parts: list[str], logprobs: Any, usage: Any) -> None:
    whole = whole_of(COMPLETIONS, parts, logprobs, usage)
    assert joined(list(chunks_of(COMPLETIONS, whole, usage=True))) == whole


def test_calls_of_tools_are_joined_by_their_index() -> None:
    def chunk(*pieces: Any, reason: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"tool_calls": list(pieces)}, "finish_reason": reason}]}

    def piece(index: int, arguments: str, **named: str) -> dict[str, Any]:
        function = {"arguments": arguments} | ({"name": named["name"]} if named else {})
        return {"index": index, "function": function} | ({"id": named["id"], "type": "function"} if named else {})

    chunks = [
        chunk(piece(0, "", name="f", id="a")),
        chunk(piece(1, '{"y', name="g", id="b"), piece(0, '{"x')),
        chunk(piece(0, '": 1}'), piece(1, '": 2}'), reason="tool_calls"),
    ]
    [first, second] = joined(chunks)["choices"][0]["message"]["tool_calls"]
    assert first == {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assert second == {"id": "b", "type": "function", "function": {"name": "g", "arguments": '{"y": 2}'}}


def test_a_stream_without_its_end_is_no_answer() -> None:
    chunks = list(chunks_of(CHAT, whole_of(CHAT, [{"role": "assistant", "content": "a"}], None, {}), usage=False))
    unfinished, unsaid = Joiner(), Joiner()
    for chunk in chunks[:-1]:
        unfinished.add(chunk)
    unfinished.done = True
    for chunk in chunks:
        unsaid.add(chunk)
    for joiner in (unfinished, unsaid, Joiner()):
        with pytest.raises(MalformedError):
            joiner.whole()


def events_of(data: bytes, sizes: list[int]) -> list[Any]:
    async def pieces() -> AsyncIterator[bytes]:
        rest = data
        for size in [*sizes, len(data)]:
            yield rest[:size]
            rest = rest[size:]

    async def collected() -> list[Any]:
        return [event async for event in read_events(pieces())]

    return asyncio.run(collected())


@settings(max_examples=80)
@given(st.lists(st.dictionaries(texts, texts, max_size=2), max_size=4), st.lists(st.integers(0, 9), max_size=30))
def test_events_do_not_depend_on_how_bytes_are_cut(values: list[Any], sizes: list[int]) -> None:
    data = b": comment\n\n" + b"".join(map(plain_event, values)) + DONE
    assert events_of(data, sizes) == [*values, None]
    assert events_of(data.replace(b"\n", b"\r\n"), sizes) == [*values, None]


def test_data_of_several_lines_and_a_missing_last_line() -> None:
    assert events_of(b'event: x\ndata: {"a":\ndata: 1}\n\ndata: {"b": 2}', []) == [{"a": 1}, {"b": 2}]
    for data in (b"data: nonsense\n\n", b"data: [1]\n\n"):
        with pytest.raises(MalformedError):
            events_of(data, [])
    assert json.loads(plain_event({"a": 1}).removeprefix(b"data: ")) == {"a": 1}
