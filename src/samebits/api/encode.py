"""Prompts to token ids, off the event loop where a text is long."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from samebits.errors import InputError
from samebits.llm import LLM
from samebits.numerics.digests import digest_bytes

T = TypeVar("T")
# About a millisecond of work; longer texts are encoded in a thread, so that streams of others do not wait for them.
MOST_CHARACTERS_INLINE: Final = 4000


@dataclass(frozen=True)
class Rendered:
    """A conversation as the model reads it.

    Attributes:
        ids: of its tokens.
        sha256: digest of the text that the chat template made of it, in UTF-8.
    """

    ids: list[int]
    sha256: str


async def encode_conversation(
    llm: LLM,
    messages: Sequence[Mapping[str, Any]],
    date: datetime.date,
    *,
    field: str = "messages",
    tools: Sequence[Mapping[str, Any]] = (),
    beginning: str = "",
) -> Rendered:
    """A conversation through the model's chat template.

    Args:
        field: what the messages are called, for errors.
        tools: what the model may call.
        beginning: of the answer; it ends the prompt.

    Raises:
        InputError: the template refuses it, or a text cannot be encoded.
    """
    size = sum(len(str(part)) for part in (*messages, *tools))

    def encode() -> Rendered:
        text = llm.tokenizer.apply_chat_template(messages, date=date, tools=tools) + beginning
        return Rendered(llm.tokenizer.encode(text, add_special=False), digest_bytes(text.encode()))

    try:
        return await _run(encode, size)
    except InputError as error:
        raise InputError(error.message, field=field, remedy=error.remedy) from error


async def encode_text(llm: LLM, text: str, *, add_special: bool, field: str = "prompt") -> list[int]:
    """Token ids of a text.

    Raises:
        InputError: it cannot be encoded, or no tokens result.
    """
    try:
        ids = await _run(lambda: llm.tokenizer.encode(text, add_special), len(text))
    except InputError as error:
        raise InputError(error.message, field=field, remedy=error.remedy) from error
    if not ids:
        raise InputError(
            "has no tokens: it is empty and the model adds none", field=field, remedy="Give a non-empty text."
        )
    return ids


async def decode_ids(llm: LLM, ids: Sequence[int]) -> str:
    """The text of token ids, without special tokens. Requires ids of the vocabulary."""
    return await _run(lambda: llm.tokenizer.decode(ids), len(ids))


async def _run(work: Callable[[], T], size: int) -> T:
    return work() if size <= MOST_CHARACTERS_INLINE else await asyncio.to_thread(work)
