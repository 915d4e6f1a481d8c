"""A server over a small model for all tests of the API, and one whose output a test can write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from live import NAME, Live, Scripted, live, write_model

from samebits import LLM


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def api(model_folder: str) -> Iterator[Live]:
    """For tests that leave it as it was."""
    with LLM(model_folder) as llm, live({NAME: llm}) as server:
        yield server


@pytest.fixture(scope="session")
def scripted_api(model_folder: str) -> Iterator[tuple[Live, Scripted]]:
    with LLM(model_folder, prefix_cache=False) as llm:
        ids = [llm.tokenizer.encode(chr(i))[0] if i < 128 else -1 for i in range(256)]
        known = {llm.tokenizer.token_bytes(i): i for i in range(256)}
        decoder = Scripted(llm.engine._decoder, [known[bytes([i])] for i in range(256)], llm.tokenizer.eos_ids[0])
        assert [i for i in ids if i >= 0] == [known[bytes([i])] for i in range(128)]
        llm.engine._decoder = decoder
        with live({NAME: llm}) as server:
            yield server, decoder


@pytest.fixture
def script(scripted_api: tuple[Live, Scripted]) -> Iterator[Any]:
    """Makes the model say something after a prompt: ``script(b"...", "prompt")`` → the server."""
    server, decoder = scripted_api

    def say(text: bytes, prompt: str = "Hi") -> Live:
        decoder.script, decoder.prompt_length = text, len(prompt.encode())
        return server

    yield say
    decoder.script = None
