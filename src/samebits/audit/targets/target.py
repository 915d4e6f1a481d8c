"""The interface of everything that can be audited."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

Messages = tuple[Mapping[str, str], ...]
# Entered while a request is at the target: not while it waits for its turn or for the end of a rate limit.
Flight = AbstractContextManager[None]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One question to a target.

    Attributes:
        messages: the conversation, each message with ``role`` and ``content``.
        max_tokens: most tokens of the answer.
        temperature, top_p: None leaves them to the target.
        seed: None sends none.
        top_logprobs: best tokens to report beside each log-probability; None asks for no log-probabilities.
        schema: JSON schema that the answer should keep to.
        stream: the answer as events.
    """

    messages: Messages
    max_tokens: int
    temperature: float | None = 0.0
    top_p: float | None = None
    seed: int | None = None
    top_logprobs: int | None = None
    schema: Mapping[str, Any] | None = None
    stream: bool = False


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back. Fields that a target does not offer are None; see ``Observation`` for most of them.

    Attributes:
        seed_sent: the seed in the request as it left: None where none was asked for, or the target does not take one.
        error: why there is no answer, in words that stay the same for the same failure.
        detail: the target's own words about the failure, without keys.
        attempts: requests sent until this came of it.
        first_token_s, total_s: seconds since the attempt that was answered began.
    """

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    tokens: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[tuple[tuple[str, float], ...], ...] | None = None
    finish_reason: str | None = None
    fingerprint: str | None = None
    body: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    prefill_chunks: int | None = None
    stream_events: int | None = None
    seed_sent: int | None = None
    seed_echoed: int | None = None
    error: str | None = None
    detail: str | None = None
    attempts: int = 1
    first_token_s: float | None = None
    total_s: float = 0.0


class Target(Protocol):
    """Something that answers. Opened once, then asked by many tasks of one event loop at once.

    Attributes:
        notes: what a reader of the results must know: what the target was found not to offer, what seemed odd.
    """

    notes: dict[str, str]

    async def open(self, probes: tuple[Ask, ...], known: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Makes it ready.

        Args:
            probes: one question of each shape that will be asked; what the target refuses of it is left out later on,
                and noted.
            known: what an earlier ``open`` returned; nothing is probed again then.

        Returns:
            What was found, of JSON's types.

        Raises:
            InputError: model, key or address are wrong.
            MeasurementError: it cannot be asked.
        """
        ...

    async def ask(self, ask: Ask, flight: Flight) -> Reply:
        """Asks; a failure is a reply too.

        Raises:
            MeasurementError: asking on makes no sense, such as when it wants hours of patience.
        """
        ...

    async def forget_prefixes(self) -> bool | None:
        """Empties the prefix cache: whether it could, this time; None when the target has no means for that."""
        ...

    async def close(self) -> None:
        """Gives everything back."""
        ...
