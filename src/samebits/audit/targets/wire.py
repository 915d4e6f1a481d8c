"""OpenAI's chat format as bytes: what is sent, and what an answer holds. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import orjson

from samebits.audit.targets.target import Ask, Reply
from samebits.errors import InputError
from samebits.numerics import digest_json

# Parts of a request that a target may not know; what it refuses is left out and noted. Least common first.
EXTRAS: Final = ("return_token_ids", "stream_options", "top_logprobs", "logprobs", "response_format", "seed")
# Fields of a response that differ although the answer is the same: names, clocks, and what the cache happened to hold.
VOLATILE: Final = frozenset({"id", "created", "request_id", "timings", "metrics", "service_tier", "kv_transfer_params"})
VOLATILE_OF_US: Final = frozenset({"receipt_id", "cached_prompt_tokens", "prefill_chunks"})
VOLATILE_OF_GATEWAY: Final = frozenset({"upstream_id", "cache"})
# Bytes of a page that is no error object: more than is shown, as a key in it must be found before it is cut.
MOST_OF_PAGE: Final = 10_000
T = TypeVar("T")
WITHOUT_LOGPROBS: Final = "--top-logprobs -1 asks for none"


class MalformedError(Exception):
    """An answer is not in OpenAI's format; says what is missing."""


def read_json(data: bytes) -> Any:
    """JSON, also with lone surrogates, which one of the two readers refuses.

    Raises:
        MalformedError: not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data)
        except ValueError as error:
            raise MalformedError("the answer is not JSON") from error


def body_of(ask: Ask, model: str, extras: frozenset[str], limit_name: str, *, most_best: int | None = None) -> bytes:
    """The body of a request.

    Args:
        extras: those of EXTRAS that the target accepts.
        limit_name: ``max_tokens`` or ``max_completion_tokens``.
        most_best: most best tokens that the target tells; None where it takes what is asked for.
    """
    body: dict[str, Any] = {"model": model, "messages": ask.messages, limit_name: ask.max_tokens}
    if ask.temperature is not None:
        body["temperature"] = ask.temperature
    if ask.top_p is not None:
        body["top_p"] = ask.top_p
    if ask.seed is not None and "seed" in extras:
        body["seed"] = ask.seed
    if ask.top_logprobs is not None and "logprobs" in extras:
        body["logprobs"] = True
        if "top_logprobs" in extras and (best := best_asked(ask, most_best)):
            body["top_logprobs"] = best
    if ask.schema is not None and "response_format" in extras:
        schema = {"name": "answer", "strict": True, "schema": ask.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if "return_token_ids" in extras:
        body["return_token_ids"] = True
    if ask.stream:
        body["stream"] = True
        if "stream_options" in extras:
            body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body)


def best_asked(ask: Ask, most_best: int | None) -> int:
    """How many best tokens a question asks a target for that tells so many at most."""
    wanted = ask.top_logprobs or 0
    return wanted if most_best is None else min(wanted, most_best)


def wanted_extras(asks: tuple[Ask, ...]) -> frozenset[str]:
    """Those of EXTRAS that some of the questions need."""
    wanted = {"return_token_ids"}
    for ask in asks:
        wanted |= {"stream_options"} if ask.stream else set()
        wanted |= {"seed"} if ask.seed is not None else set()
        wanted |= {"response_format"} if ask.schema is not None else set()
        if ask.top_logprobs is not None:
            wanted |= {"logprobs", "top_logprobs"} if ask.top_logprobs else {"logprobs"}
    return frozenset(wanted)


def error_of(status: int, data: bytes) -> dict[str, Any]:
    """The error object of a response: OpenAI's, or one made of whatever came."""
    try:
        body = read_json(data)
    except MalformedError:
        body = None
    if isinstance(body, list) and len(body) == 1:  # Gemini's OpenAI route
        body = body[0]
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return error
    message = error or (body.get("message") or body.get("detail") if isinstance(body, dict) else None)
    return {"message": str(message or data[:MOST_OF_PAGE].decode("utf-8", "replace")), "type": None, "code": status}


def failure_name(status: int, error: Mapping[str, Any]) -> str:
    """A failure in words that stay the same for the same failure: no message, since those hold names and times."""
    kind = error.get("code") if isinstance(error.get("code"), str) else error.get("type")
    return f"HTTP {status} {kind}" if isinstance(kind, str) and kind else f"HTTP {status}"


def reply_of(whole: object) -> Reply:
    """What a response holds; for streams of the joined one.

    Raises:
        MalformedError: no choice or no message in it.
    """
    if not isinstance(whole, dict) or not isinstance(whole.get("choices"), list) or not whole["choices"]:
        raise MalformedError("the answer has no choices")
    choice = whole["choices"][0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise MalformedError("the answer has no message")
    usage, ours = _object(whole.get("usage")), _object(whole.get("samebits"))
    return replace(
        _tokens(choice),
        text=_text(message.get("content")),
        finish_reason=_of(str, choice.get("finish_reason")),
        fingerprint=_of(str, whole.get("system_fingerprint")),
        body=body_digest(whole),
        prompt_tokens=_of(int, usage.get("prompt_tokens")),
        completion_tokens=_of(int, usage.get("completion_tokens")),
        cached_tokens=_of(int, _object(usage.get("prompt_tokens_details")).get("cached_tokens")),
        prefill_chunks=_of(int, ours.get("prefill_chunks")),
        seed_echoed=_of(int, ours.get("seed")),
    )


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, list):  # parts; those without a text are of another kind
        content = "".join(text for part in content if isinstance(text := _object(part).get("text", ""), str))
    if not isinstance(content, str):
        raise MalformedError("the content of the answer is not a text")
    return content


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of(kind: type[T], value: object) -> T | None:
    return value if isinstance(value, kind) and type(value) is kind else None  # bool is an int to isinstance


def _tokens(choice: Mapping[str, Any]) -> Reply:
    """What a choice tells of its tokens; the rest of the reply is missing."""
    entries = _object(choice.get("logprobs")).get("content")
    ids = _of(list, choice.get("token_ids"))
    if ids is not None and not all(type(i) is int for i in ids):
        raise MalformedError("the token ids are not integers")
    if not isinstance(entries, list):
        return Reply(token_ids=None if ids is None else tuple(ids))
    try:
        tokens, logprobs = _column(entries)
        best = tuple(tuple(zip(*_column(entry.get("top_logprobs") or ()), strict=True)) for entry in entries)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise MalformedError(f"the log-probabilities are not in OpenAI's format; {WITHOUT_LOGPROBS}") from error
    if ids is None:  # llama.cpp puts the id beside each log-probability
        ids = [entry.get("id") for entry in entries]
        ids = ids if all(type(i) is int for i in ids) else None
    if ids is not None and len(ids) != len(logprobs):
        raise MalformedError(f"{len(ids)} token ids, but {len(logprobs)} log-probabilities; {WITHOUT_LOGPROBS}")
    return Reply(
        token_ids=None if ids is None else tuple(ids),
        tokens=tokens,
        logprobs=logprobs,
        top_logprobs=best if any(best) else None,
    )


def _column(entries: Sequence[Any]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The tokens of a list of OpenAI's log-probabilities, and these.

    Raises:
        KeyError, TypeError, OverflowError: they are not in OpenAI's format.
    """
    tokens, scores = tuple(entry["token"] for entry in entries), tuple(entry["logprob"] for entry in entries)
    if set(map(type, tokens)) <= {str} and set(map(type, scores)) <= {float, int}:
        return tokens, tuple(map(float, scores))
    raise TypeError("a token is not a text, or a log-probability not a number")


def body_digest(whole: Mapping[str, Any]) -> str | None:
    """Digest of a response without its volatile fields; None for what has no canonical form (a lone surrogate)."""
    steady = {name: value for name, value in whole.items() if name not in VOLATILE and value is not None}
    usage, ours = steady.get("usage"), steady.get("samebits")
    if isinstance(usage, dict):
        steady["usage"] = {name: value for name, value in usage.items() if name != "prompt_tokens_details"}
    if isinstance(ours, dict):
        steady["samebits"] = own = {name: value for name, value in ours.items() if name not in VOLATILE_OF_US}
        if isinstance(gateway := own.get("gateway"), dict):
            own["gateway"] = {name: value for name, value in gateway.items() if name not in VOLATILE_OF_GATEWAY}
    try:
        return digest_json(steady)
    except InputError:
        return None


# ---- streams ---------------------------------------------------------------------------------------------------------


class EventSplitter:
    """Server-sent events out of bytes that come in pieces of any size. An event may have several lines of data."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The data of each event that is now complete; comments and other fields are passed over."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif self._data and line in (b"", b"\r"):
                event, self._data = b"\n".join(self._data), []
                yield event

    def end(self) -> Iterator[bytes]:
        """The event that the stream ended with, where the empty line after it is missing."""
        return self.feed(b"\n\n")


class StreamJoiner:
    """Chunks of a stream as the response that would have come whole.

    Attributes:
        events: chunks that carried a piece of the text.
        done: whether ``[DONE]`` was seen.
    """

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"message": {}}
        self._seen = self.done = False
        self.events = 0

    def add(self, data: bytes) -> bool:
        """Takes the data of one event; returns whether it carried text.

        Raises:
            MalformedError: it is neither JSON nor ``[DONE]``.
            StreamFailedError: it is an error.
        """
        if data == b"[DONE]":
            self.done = True
            return False
        chunk = read_json(data)
        if not isinstance(chunk, dict):
            raise MalformedError("an event is not an object")
        if isinstance(chunk.get("error"), dict):
            raise StreamFailedError(chunk["error"])
        for name, value in chunk.items():
            if name == "object":
                self._whole[name] = str(value).removesuffix(".chunk")
            elif name != "choices" and value is not None:
                self._whole[name] = value
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
            raise MalformedError("an event has choices that are not a list of objects")
        pieces = [c for c in choices if c.get("index", 0) == 0]
        carried = [self._add(piece) for piece in pieces]
        return any(carried)

    def _add(self, piece: Mapping[str, Any]) -> bool:
        self._seen = True
        for name, value in piece.items():
            if name == "delta":
                if not isinstance(value, dict | None):
                    raise MalformedError("a delta is not an object")
                _merge(self._choice["message"], value or {})
            elif name == "logprobs":
                if isinstance(value, dict):
                    _merge(self._choice.setdefault("logprobs", {}), value)
            elif isinstance(value, list):
                before = self._choice.get(name, [])
                if not isinstance(before, list):
                    raise MalformedError("a field is a list in one event and none in another")
                self._choice[name] = before + value
            elif value is not None:
                self._choice[name] = value
        has_text = bool(_object(piece.get("delta")).get("content"))
        self.events += has_text
        return has_text

    def whole(self) -> dict[str, Any]:
        """The response.

        Raises:
            MalformedError: the stream broke off.
        """
        if not self.done:
            raise MalformedError("the stream ended without [DONE]")
        return self._whole | {"choices": [self._choice] if self._seen else []}


class StreamFailedError(Exception):
    """An error in the middle of a stream.

    Attributes:
        error: OpenAI's error object.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message")))
        self.error = error


def _merge(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        before: Any = into.get(name)
        if type(value) is type(before) and type(value) in (str, list) and name != "role":
            into[name] = before + value
        elif value is not None or name not in into:
            into[name] = value
