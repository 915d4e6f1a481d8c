"""An LLM whose engine answers a request with its own prompt."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from samebits import LLM
from samebits.engine import Completion, Event, Request
from samebits.errors import InputError
from samebits.models import Default, GenerationDefaults


class StubTokenizer:
    """A text is its letters; a conversation is rendered to its contents between brackets."""

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        return [ord(c) for c in text]

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **_: object) -> str:
        return "".join(f"[{m['content']}]" for m in messages)


class StubEngine:
    """Answers a request with its own prompt, one choice a step, the last request first."""

    def __init__(self) -> None:
        self.added: list[Request] = []
        self.open: dict[int, list[int]] = {}
        self.cancelled: list[int] = []

    def add(self, request: Request) -> int:
        if 0 in request.prompt_token_ids:
            raise InputError("is refused", field="prompt", remedy="None.")
        self.added.append(request)
        self.open[len(self.added) - 1] = list(range(request.params.n))
        return len(self.added) - 1

    @property
    def busy(self) -> bool:
        return bool(self.open)

    def step(self) -> list[Event]:
        request_id = max(self.open)
        index = self.open[request_id].pop()
        if not self.open[request_id]:
            del self.open[request_id]
        request = self.added[request_id]
        ids = request.prompt_token_ids
        done = Completion(index, "", ids, None, None, "stop", None, None, 0, request.params, request.origins)
        return [Event(request_id, index, ids[-1], "", done)]

    def cancel(self, request_id: int) -> list[Event]:
        if self.open.pop(request_id, None):
            self.cancelled.append(request_id)
        return []


class StubLLM(LLM):
    def __init__(self) -> None:
        self._lock, self._process = threading.Lock(), os.getpid()
        self.tokenizer: Any = StubTokenizer()
        self.engine: Any = StubEngine()
        self.config: Any = SimpleNamespace(vocab_size=256, context_length=8)
        self.generation_defaults = GenerationDefaults({"top_k": Default(5, "a file: top_k")})
