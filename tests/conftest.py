"""Makes modules beside the tests importable (tests are not a package); the model of the demo; options of the run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from samebits.errors import ModelError
from samebits.models.load import find_smollm2

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--peer``, for tests/api/test_peers.py."""
    parser.addoption("--peer", metavar="NAME=URL", help="server to compare our answers with, such as vLLM=http://...")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of SmolLM2, which the name ``smollm2`` stands for; skips the test where it is not installed."""
    try:
        return find_smollm2()
    except ModelError as error:
        pytest.skip(str(error))
