"""Makes the helpers beside the tests importable (tests are not a package), and sets what holds for every run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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
