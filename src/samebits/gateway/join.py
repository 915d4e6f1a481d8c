"""The chunks of a stream as the answer that would have come whole, and a whole answer as chunks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from samebits.gateway.errors import BrokenOffError, MalformedError
from samebits.ledger.routes import CHAT

_EVERYWHERE: Final = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
_ONCE: Final = frozenset({"role", "id", "type", "name", "index"})  # said once; what is said again is the same


class Joiner:
    """Collects the chunks of the routes for chat and completions.

    Attributes:
        done: whether ``[DONE]`` was seen.
    """

    def __init__(self) -> None:
        self.done = False
        self._whole: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Takes the next chunk.

        Raises:
            MalformedError: it is none.
        """
        for name, value in chunk.items():
            if name == "object":
                self._whole[name] = str(value).removesuffix(".chunk")
            elif name == "choices":
                self._whole.setdefault(name, None)  # keeps the place
                if not all(map(_is_piece, value or ())) if isinstance(value, list) else value is not None:
                    raise MalformedError("a chunk of the upstream has no choices")
                for piece in value or ():
                    self._add(piece)
            elif value is not None or name not in self._whole:
                self._whole[name] = value

    def _add(self, piece: Mapping[str, Any]) -> None:
        choice = self._choices.setdefault(piece.get("index", 0), {})
        for name, value in piece.items():
            if name == "delta":
                _merge(choice.setdefault("message", {}), value or {})
            elif isinstance(value, dict):
                held = choice.get(name)
                if not isinstance(held, dict):
                    held = choice[name] = {}
                _merge(held, value)
            elif isinstance(value, str) and name == "text":
                choice[name] = (choice.get(name) or "") + value
            elif isinstance(value, list) and isinstance(choice.get(name) or [], list):
                choice[name] = (choice.get(name) or []) + value
            elif value is not None or name not in choice:
                choice[name] = value

    @property
    def ended(self) -> bool:
        """Whether every choice seen so far has said why it ended."""
        return bool(self._choices) and all(c.get("finish_reason") is not None for c in self._choices.values())

    def whole(self) -> dict[str, Any]:
        """The answer.

        Raises:
            BrokenOffError: the stream broke off.
        """
        if not self.done or not self.ended:
            raise BrokenOffError("the stream of the upstream broke off")
        choices = [self._choices[index] for index in sorted(self._choices)]
        for choice in choices:
            for call in (choice.get("message") or {}).get("tool_calls") or ():
                call.pop("index", None)
        return {**self._whole, "choices": choices}


def _is_piece(piece: object) -> bool:
    """Whether it has the form of a choice, as far as joining relies on it."""
    if not isinstance(piece, dict) or not isinstance(piece.get("index", 0), int) or "message" in piece:
        return False
    delta, text = piece.get("delta"), piece.get("text")
    if not (delta is None or isinstance(delta, dict)) or not (text is None or isinstance(text, str)):
        return False
    calls = None if delta is None else delta.get("tool_calls")
    if calls is None:
        return True
    return isinstance(calls, list) and all(isinstance(c, dict) and isinstance(c.get("index", 0), int) for c in calls)


def _merge(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        before: Any = into.get(name)
        grows = isinstance(value, list) or (isinstance(value, str) and name not in _ONCE)
        if name == "tool_calls" and isinstance(value, list):
            into[name] = _merged_calls(before or [], value)
        elif isinstance(value, dict) and isinstance(before, dict):
            _merge(before, value)
        elif grows and type(before) is type(value):
            into[name] = before + value
        elif value is not None or name not in into:
            into[name] = dict(value) if isinstance(value, dict) else value


def _merged_calls(calls: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for piece in pieces:
        index = piece.get("index", len(calls))
        held = next((call for call in calls if call.get("index") == index), None)
        if held is None:
            held = {"index": index}
            calls.append(held)
        _merge(held, piece)
    return sorted(calls, key=lambda call: int(call["index"]))


def chunks_of(path: str, whole: Mapping[str, Any], *, usage: bool) -> Iterator[dict[str, Any]]:
    """The chunks of a whole answer of the routes for chat and completions; joined they give it again.

    Args:
        usage: whether the usage was asked for: it comes in one more chunk.
    """
    common = {name: whole[name] for name in _EVERYWHERE if name in whole}
    if path == CHAT:
        common["object"] = "chat.completion.chunk"
    if usage:
        common["usage"] = None
    first = {n: v for n, v in whole.items() if n not in (*_EVERYWHERE, "choices", "usage", "samebits")}
    choices = whole["choices"]
    for i, choice in enumerate(choices):
        for piece in _pieces(path, choice):
            chunk = {**common, **first, "choices": [piece]}
            first = {}
            if i == len(choices) - 1 and piece["finish_reason"] is not None and "samebits" in whole:
                chunk["samebits"] = whole["samebits"]
            yield chunk
    if usage:
        yield {**common, "choices": [], "usage": whole.get("usage")}


def _pieces(path: str, choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    index, reason = choice.get("index", 0), choice.get("finish_reason")
    others = {n: v for n, v in choice.items() if n not in ("index", "message", "text", "logprobs", "finish_reason")}
    logprobs = choice.get("logprobs")
    if path != CHAT:
        yield {"index": index, "text": choice.get("text", ""), "logprobs": logprobs, "finish_reason": None, **others}
        yield {"index": index, "text": "", "logprobs": None, "finish_reason": reason}
        return
    message = dict(choice.get("message") or {})
    calls = message.pop("tool_calls", None)
    opening = {"role": message.pop("role", "assistant")}
    delta = {**opening, **message}
    yield {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None, **others}
    if calls is not None:
        numbered = [{"index": number, **call} for number, call in enumerate(calls)]
        yield {"index": index, "delta": {"tool_calls": numbered}, "logprobs": None, "finish_reason": None}
    yield {"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}


def without_usage(chunk: Mapping[str, Any]) -> dict[str, Any] | None:
    """A chunk as it is when no usage was asked for; None for the one that would not be there."""
    if not chunk.get("choices") and chunk.get("usage") is not None:
        return None
    return {name: value for name, value in chunk.items() if name != "usage"}
