"""Asking again where a text is not valid, with what was wrong; bounded, and the same way every time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from samebits.gateway.check import Check, cut_short, texts_of
from samebits.gateway.errors import NotValidError
from samebits.gateway.plan import derived_seed
from samebits.ledger.routes import CHAT


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    Attributes:
        number: from 1.
        body: what was sent.
        whole: the answer.
        texts: those of it that were judged.
        problem: what is wrong with it; None where nothing is.
    """

    number: int
    body: Mapping[str, Any]
    whole: dict[str, Any]
    texts: tuple[str, ...]
    problem: str | None

    @property
    def described(self) -> dict[str, Any]:
        """For an error body."""
        return {
            "attempt": self.number,
            "seed": self.body.get("seed"),
            "texts": list(self.texts),
            "problem": self.problem,
        }


async def converge(
    path: str,
    body: Mapping[str, Any],
    check: Check,
    retries: int,
    send: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]],
    note: Callable[[Attempt], Awaitable[None]],
) -> Attempt:
    """The first attempt whose texts are valid.

    An attempt after the first one is the request, the last answer, and what is wrong with it: it does not grow. Its
    seed is derived from the first one and its number. An answer that was cut by a limit is not tried again, nor is
    a request that was sent before and is answered greedily.

    Args:
        send: sends a body and gives its whole answer.
        note: is told of each attempt.

    Raises:
        NotValidError: there is none; holds all attempts.
    """
    attempts: list[Attempt] = []
    current, why = dict(body), ""
    for number in range(1, retries + 2):
        whole = await send(current)
        texts = tuple(texts_of(path, whole))
        cut = cut_short(path, whole)
        problem = f"was cut short ({cut})" if cut is not None else await _first_problem(check, texts)
        attempt = Attempt(number, current, whole, texts, problem)
        attempts.append(attempt)
        await note(attempt)
        if problem is None:
            return attempt
        if cut is not None:
            why = f"the answer was cut short ({cut}); it is not tried again, since it would be as long: raise the limit"
            break
        if path != CHAT:
            why = "there is no conversation into which the error could be fed back"
            break
        following = _following(body, attempt, number + 1)
        if following.get("temperature") == 0 and any(_same(following, earlier.body) for earlier in attempts):
            why = "the next request would be one that was already answered greedily"
            break
        current = following
    said = f"no valid answer in {len(attempts)} of {retries + 1} attempts: {attempts[-1].problem}"
    raise NotValidError(f"{said}{f' ({why})' if why else ''}", [attempt.described for attempt in attempts])


async def _first_problem(check: Check, texts: tuple[str, ...]) -> str | None:
    for text in texts:
        if (problem := await check.problem(text)) is not None:
            return problem
    return None


def _following(body: Mapping[str, Any], last: Attempt, number: int) -> dict[str, Any]:
    text = next(iter(last.texts), "")
    feedback = f"That answer is not valid: {last.problem}. Answer again so that it is valid, with nothing else."
    messages = [
        *body.get("messages", ()),
        {"role": "assistant", "content": text},
        {"role": "user", "content": feedback},
    ]
    following = {**body, "messages": messages}
    if body.get("seed") is not None:
        following["seed"] = derived_seed("attempt", str(body["seed"]), number)
    return following


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two bodies differ in nothing but the seed."""
    return {**one, "seed": None} == {**other, "seed": None}
