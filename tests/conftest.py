"""Makes the modules beside the tests importable; the model of the demo; what holds for every run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from samebits.errors import ModelError
from samebits.models.load import find_smollm2

sys.path.insert(0, str(Path(__file__).parent))

# The same examples in every run, at any speed: a run says something about the code, and nothing about the day.
# `pytest --hypothesis-profile=explore` draws others.
settings.register_profile("tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", settings.get_profile("tests"), derandomize=False, print_blob=True)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--peer``, for tests/api/test_peers.py."""
    parser.addoption("--peer", metavar="NAME=URL", help="server to compare our answers with, such as vLLM=http://...")


def pytest_configure() -> None:
    """Keeps a proxy of this machine away from the servers of the tests, which are on the machine itself."""
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1", "localhost")))


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of SmolLM2, which the name ``smollm2`` stands for; skips the test where it is not installed."""
    try:
        return find_smollm2()
    except ModelError as error:
        pytest.skip(str(error))
