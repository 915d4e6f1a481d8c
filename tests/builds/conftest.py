"""The wheel of this machine, built and installed once; makes `builds` importable (tests are not a package)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import builds


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` makes, with a link map beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    settings = f"-Ccmake.define.CMAKE_MODULE_LINKER_FLAGS=-Wl,-Map={folder}/link.map"
    builds.output(
        builds.tool("make", package="make"), "-C", builds.ROOT, "wheel", f"DIST={folder}", f"WHEEL={settings}"
    )
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> builds.Python:
    """A Python of a new environment in which the wheel is installed."""
    return builds.install(wheel, tmp_path_factory.mktemp("environment"))
