"""What our server and a peer are both asked, and the bodies of their answers, sorted by kind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from live import sse_data

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "paint", "description": "Paints it.", "parameters": SCHEMA}}]
HI = [{"role": "user", "content": "Name a colour."}]
USAGE = {"include_usage": True}


@dataclass(frozen=True)
class Case:
    """A request.

    Attributes:
        body: its fields besides the model; text is sent as it is.
        error: whether OpenAI refuses it.
    """

    name: str
    path: str
    body: Mapping[str, Any] | str | None
    error: bool = False
    method: str = "POST"

    @property
    def kind(self) -> str:
        """The kind of answer, of ``answer_shapes.SPECIFIED``."""
        if self.error:
            return "error"
        if self.path == "/v1/models":
            return "models"
        return "chat" if self.path == CHAT else "completion"


def chat(name: str, *, error: bool = False, **fields: Any) -> Case:
    return Case(name, CHAT, {"messages": HI, "max_tokens": 3, "temperature": 0} | fields, error)


def complete(name: str, *, error: bool = False, **fields: Any) -> Case:
    return Case(name, COMPLETE, {"prompt": "Once upon", "max_tokens": 3, "temperature": 0} | fields, error)


FORMAT = {"type": "json_schema", "json_schema": {"name": "paint", "strict": True, "schema": SCHEMA}}
CALL = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 100}
CASES = (
    chat("chat"),
    chat("chat, n", n=2, temperature=1, seed=3),
    chat("chat, logprobs", logprobs=True),
    chat("chat, top_logprobs", logprobs=True, top_logprobs=2),
    chat("chat, stop", stop=["e"], max_tokens=30),
    chat("chat, json_schema", response_format=FORMAT, max_tokens=60),
    chat("chat, tools", **CALL),
    chat("chat, stream", stream=True),
    chat("chat, stream, n", stream=True, n=2, temperature=1, seed=3),
    chat("chat, stream, usage", stream=True, stream_options=USAGE),
    chat("chat, stream, top_logprobs", stream=True, logprobs=True, top_logprobs=2),
    chat("chat, stream, tools", stream=True, **CALL),
    complete("completion"),
    complete("completion, n", n=2, temperature=1, seed=3),
    complete("completion, prompts", prompt=["Once upon", "There was"]),
    complete("completion, logprobs", logprobs=2),
    complete("completion, stop", stop=["e"], max_tokens=30),
    complete("completion, stream", stream=True),
    complete("completion, stream, usage", stream=True, stream_options=USAGE),
    complete("completion, stream, logprobs", stream=True, logprobs=2),
    Case("models", "/v1/models", None, method="GET"),
    Case("bad JSON", CHAT, '{"model":', error=True),
    chat("unknown model", error=True, model="no-such-model"),
    chat("messages of a wrong type", error=True, messages=3),
    chat("no messages", error=True, messages=None),
    chat("empty messages", error=True, messages=[]),
    chat("temperature of a wrong type", error=True, temperature="warm"),
    chat("temperature out of range", error=True, temperature=9),
    chat("n out of range", error=True, n=0),
    chat("max_tokens out of range", error=True, max_tokens=-7),
    chat("unknown role", error=True, messages=[{"role": "nobody", "content": "Hi"}]),
    complete("no prompt", error=True, prompt=None),
    Case("no such route", "/v1/nothing", None, error=True, method="GET"),
    Case("another method", CHAT, None, error=True, method="GET"),
)


@dataclass(frozen=True)
class Answered:
    """What came back: the bodies, by kind; a stream's chunks by what they are for."""

    status: int
    bodies: Mapping[str, list[Any]]


def ask(http: httpx.Client, model: str, case: Case) -> Answered:
    """Asks a server."""
    if isinstance(case.body, str):
        content = case.body
    else:
        fields = {"model": model} | dict(case.body or {})
        content = json.dumps({name: value for name, value in fields.items() if value is not None})
    sent = {} if case.method == "GET" else {"content": content, "headers": {"content-type": "application/json"}}
    response = http.request(case.method, case.path, **sent)
    if response.headers["content-type"].startswith("text/event-stream"):
        events = list(sse_data(iter(response.text.splitlines())))
        assert events[-1] == "[DONE]", events[-1]
        return Answered(response.status_code, dict(_sorted(case.kind, [json.loads(e) for e in events[:-1]])))
    kind = case.kind if response.status_code == 200 or case.error else "error"
    return Answered(response.status_code, {kind: [response.json()]})


def _sorted(kind: str, chunks: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Chunks by their place in a stream; `kind` without its place is that of `answer_shapes`."""
    places: dict[str, list[Any]] = {}
    for chunk in chunks:
        choices = chunk["choices"]
        if not choices:
            place = "usage"
        elif choices[0]["finish_reason"] is not None:
            place = "end"
        else:
            place = "start" if "role" in choices[0].get("delta", {}) else "piece"
        places.setdefault(f"{kind} chunk: {place}", []).append(chunk)
    yield from places.items()
