"""Clang compiles the package without a warning and to the same bits; it takes liberties that GCC does not."""

from __future__ import annotations

from pathlib import Path

import pytest

import builds

pytestmark = pytest.mark.build
# Debian's packages put the version into the name.
CLANGS = ("clang++", *(f"clang++-{version}" for version in range(30, 13, -1)))


@pytest.fixture(scope="module")
def clang(tmp_path_factory: pytest.TempPathFactory) -> builds.Python:
    compiler = builds.tool(*CLANGS, package="clang-19")
    wheel = builds.build_wheel(tmp_path_factory.mktemp("clang"), CXX=compiler)
    return builds.install(wheel, tmp_path_factory.mktemp("environment"))


def is_from_clang(path: Path) -> bool:
    return "clang version" in builds.output(builds.tool("readelf", package="binutils"), "-p", ".comment", path)


def test_the_build_is_the_one_that_is_imported(clang: builds.Python) -> None:
    module = clang.module()
    assert module.is_relative_to(Path(clang.command[0]).parents[1])
    assert is_from_clang(module)


def test_negative_control_gcc_is_told_apart(tmp_path: Path) -> None:
    source, target = tmp_path / "one.cc", tmp_path / "one.o"
    source.write_text("int one() { return 1; }\n", "utf-8")
    builds.output(builds.tool("g++", package="g++"), "-c", source, "-o", target)
    assert not is_from_clang(target)


def test_kernels(clang: builds.Python) -> None:
    assert clang.passed(str(builds.ROOT / "tests" / "kernels")) > 400


def test_golden_digests(clang: builds.Python) -> None:
    builds.model()
    file = builds.ROOT / "tests" / "invariance" / "test_machine.py"
    assert clang.passed(f"{file}::test_golden_digests", f"{file}::test_every_instruction_set") == 6
