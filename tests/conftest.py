"""Makes the stub beside the tests importable (tests are not a package), and adds options of the test run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--peer``, for tests/api/test_peers.py."""
    parser.addoption("--peer", metavar="NAME=URL", help="server to compare our answers with, such as vLLM=http://...")
