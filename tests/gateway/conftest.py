"""A stub upstream, and a server with a gateway before it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from live import Live, live
from stub import Stub, stub


@pytest.fixture
def upstream() -> Iterator[Stub]:
    with stub() as server:
        yield server


@pytest.fixture
def serve(upstream: Stub) -> Iterator[Any]:
    """Starts servers: ``serve(policies=…, m={…keys of the model…})``; the model ``m`` is the stub."""
    opened: list[Any] = []

    def start(llms: dict[str, Any] | None = None, m: dict[str, Any] | None = None, **values: Any) -> Live:
        models = {"m": {"engine": "upstream", "base_url": upstream.url} | (m or {})}
        models |= {name: {"path": "given as it is"} for name in llms or {}}
        models |= values.pop("models", {})
        context: Any = live(llms or {}, models=models, **values)
        server: Live = context.__enter__()
        opened.append(context)
        return server

    yield start
    for context in opened:
        context.__exit__(None, None, None)


def ask(content: str = "Hi", **body: Any) -> dict[str, Any]:
    """A chat request that is answered greedily."""
    return {"model": "m", "messages": [{"role": "user", "content": content}], "temperature": 0} | body
