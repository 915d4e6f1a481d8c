"""Servers for tests: real HTTP on a free port, in a thread of the test's own process, over a model of the test."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from samebits import LLM, kernels
from samebits.api.auth import ApiKeys
from samebits.api.config import make_config
from samebits.api.server import listen, make_server, url_of
from samebits.models.batch import Batch
from waiting import PATIENCE_S

NAME = "small"


class Scripted:
    """A decoder that computes as the real one does and then says what is written in ``script``.

    Attributes:
        script: the bytes that follow any prompt; after them comes the end of text. None: the real logits.
        fault: raised by the next step.
        gate: while it is clear, steps wait.
    """

    def __init__(self, real: Any, vocabulary: Sequence[int], end: int) -> None:
        self._real, self._vocabulary, self._end = real, vocabulary, end
        self.script: bytes | None = None
        self.prompt_length = 0
        self.fault: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def forward(self, batch: Batch, cache: kernels.KvCache) -> NDArray[np.float32]:
        assert self.gate.wait(PATIENCE_S)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        logits: NDArray[np.float32] = self._real.forward(batch, cache)
        if self.script is not None:
            for row, position in enumerate(batch.positions[batch.logit_rows].tolist()):
                at = position + 1 - self.prompt_length
                token = self._vocabulary[self.script[at]] if at < len(self.script) else self._end
                logits[row] = 0
                logits[row, token] = 20
        return logits


def make_scripted(llm: LLM) -> Scripted:
    """Puts a Scripted around the decoder of a model whose tokens are bytes."""
    known = {llm.tokenizer.token_bytes(i): i for i in range(256)}
    decoder = Scripted(llm.engine._decoder, [known[bytes([i])] for i in range(256)], llm.tokenizer.eos_ids[0])
    assert llm.tokenizer.encode("~") == [known[b"~"]]
    llm.engine._decoder = decoder
    return decoder


@dataclass(frozen=True)
class Standstill:
    """An engine that takes some steps and then none, until it may go on.

    Attributes:
        reached: it stands, with something to compute.
        leave: it goes on.
    """

    reached: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)


class Live:
    """A server that runs, and a client for it."""

    def __init__(self, llms: Mapping[str, LLM], *, keys: Sequence[str] = (), **values: object) -> None:
        models = {name: {"path": "given to the test as it is"} for name in llms}
        config = make_config({"models": models, "port": 0} | values)
        ready = threading.Event()
        self.server = make_server(config, llms, ApiKeys.of(keys), ready.set)
        self.service = self.server.service
        sock = listen(config)
        self.url = url_of(sock)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [sock]})
        self._thread.start()
        assert ready.wait(PATIENCE_S), "the server does not start"
        headers = {"authorization": f"Bearer {keys[0]}"} if keys else {}
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_S, headers=headers)

    @property
    def engine(self) -> Any:
        return next(iter(self.service.models.values())).llm.engine

    @property
    def driver(self) -> Any:
        return next(iter(self.service.models.values())).driver

    def close(self) -> None:
        self.http.close()
        self.server.handle_exit(0, None)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the server does not end"

    @contextlib.contextmanager
    def standing(self, steps: int = 0) -> Iterator[Standstill]:
        """So that what happens meanwhile does not depend on who is faster: the engine stands still after so many steps.

        What is submitted then waits; at the latest at the end of the block everything goes on.
        """
        still, left, step = Standstill(), steps, self.engine.step

        def until_it_may() -> Any:
            nonlocal left
            if self.engine.busy:
                if left == 0:
                    still.reached.set()
                    assert still.leave.wait(PATIENCE_S)
                else:
                    left -= 1
            return step()

        self.engine.step = until_it_may
        try:
            yield still
        finally:
            still.leave.set()
            del self.engine.step

    # ---- asking ------------------------------------------------------------------------------------------------------

    def post(self, path: str, **body: Any) -> httpx.Response:
        # Escaped, so that a test can send what is not Unicode.
        return self.http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})

    def ok(self, path: str, **body: Any) -> dict[str, Any]:
        response = self.post(path, model=NAME, **body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def chat(self, content: str = "Hi", **body: Any) -> dict[str, Any]:
        return self.ok("/v1/chat/completions", **({"messages": [{"role": "user", "content": content}]} | body))

    def complete(self, prompt: Any = "Hi", **body: Any) -> dict[str, Any]:
        return self.ok("/v1/completions", prompt=prompt, **body)

    def refused(self, path: str, status: int = 400, **body: Any) -> dict[str, Any]:
        return error_of(self.post(path, **({"model": NAME} | body)), status)

    def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The chunks of a stream that ends as it should."""
        with self.http.stream("POST", path, json={"model": NAME, "stream": True} | body) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            events = list(sse_data(response.iter_lines()))
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]


def sse_data(lines: Iterator[str]) -> Iterator[str]:
    """The data of server-sent events of one line each."""
    for line in lines:
        if line:
            assert line.startswith("data: "), line
            yield line.removeprefix("data: ")


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object of a response, checked for its shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    error: dict[str, Any] = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    assert "Traceback" not in error["message"]
    return error


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The chunks of a stream as the answer that would have come whole."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for name, value in chunk.items():
            if name == "choices":
                for part in value:
                    _add(choices.setdefault(part["index"], {}), part)
            elif name == "object":
                whole[name] = value.removesuffix(".chunk")
            elif value is not None:
                assert whole.setdefault(name, value) == value, f"{name} changes within a stream"
    whole["choices"] = [choices[index] for index in sorted(choices)]
    for choice in whole["choices"]:
        if "delta" in choice:
            choice["message"] = choice.pop("delta")
    return whole


def _add(choice: dict[str, Any], part: dict[str, Any]) -> None:
    for name, value in part.items():
        before = choice.get(name)
        if name in ("index", "role") or before is None:
            choice[name] = dict(value) if isinstance(value, dict) else value
        elif isinstance(value, dict):
            _add(before, value)
        elif isinstance(value, str | list):
            choice[name] = before + value
        elif value is not None:
            assert before == value, name


VOLATILE = ("id", "created")


def steady(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs each time."""
    return {name: value for name, value in answer.items() if name not in VOLATILE}


@contextlib.contextmanager
def live(llms: Mapping[str, LLM], **values: Any) -> Iterator[Live]:
    server = Live(llms, **values)
    try:
        yield server
    finally:
        server.close()
