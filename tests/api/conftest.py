"""A server over a small model for all tests of the API, and one whose output a test can write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from live import NAME, Live, Scripted, live, make_scripted

from samebits import LLM
from small_model import write_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def api(model_folder: str) -> Iterator[Live]:
    """For tests that leave it as it was."""
    with LLM(model_folder) as llm, live({NAME: llm}) as server:
        yield server


@pytest.fixture(scope="session")
def roomy_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with room for tools."""
    return write_model(tmp_path_factory.mktemp("roomy"), context=4096)


@pytest.fixture(scope="session")
def roomy(roomy_folder: str) -> Iterator[Live]:
    """As ``api``."""
    with LLM(roomy_folder) as llm, live({NAME: llm}) as server:
        yield server


@pytest.fixture(scope="module")
def stage(roomy_folder: str) -> Iterator[tuple[Live, Scripted]]:
    with LLM(roomy_folder) as llm:
        decoder = make_scripted(llm)
        with live({NAME: llm}) as server:
            yield server, decoder


@pytest.fixture(scope="session")
def scripted_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Scripted]]:
    folder = write_model(tmp_path_factory.mktemp("scripted"), context=2048)
    with LLM(folder, prefix_cache=False) as llm:
        decoder = make_scripted(llm)
        with live({NAME: llm}) as server:
            yield server, decoder


@pytest.fixture
def script(scripted_api: tuple[Live, Scripted]) -> Iterator[Any]:
    """Makes the model say something after a prompt: ``script(b"...", "prompt")`` → the server. A conversation is given
    by the number of its tokens.
    """
    server, decoder = scripted_api

    def say(text: bytes, prompt: str | int = "Hi") -> Live:
        decoder.script = text
        decoder.prompt_length = prompt if isinstance(prompt, int) else len(prompt.encode())
        return server

    yield say
    decoder.script = None
