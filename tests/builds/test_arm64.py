"""The package for arm64, cross-compiled and run by an arm64 Python under emulation, gives the same bits.

tests/arm64 compares the kernels alone, in more cases; here the whole package is built, installed and loads a model.
"""

from __future__ import annotations

import platform
import subprocess
import sysconfig
from pathlib import Path

import pytest

import builds

pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(platform.machine() in ("aarch64", "arm64"), reason="tests/kernels runs these kernels natively"),
]
ISAS = ("scalar", "neon")
# Names of platforms whose wheels run on the C library that Debian 12 has.
PLATFORMS = ["linux_aarch64", "manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in range(36, 16, -1))]


@pytest.fixture(scope="module")
def root() -> Path:
    """A folder with an arm64 Python, kept between runs."""
    for name in ("apt-get", "dpkg-deb"):
        builds.tool(name, package="apt")
    folder = builds.ROOT / "build" / "arm64"
    if not (folder / "complete").exists():
        script = Path(__file__).with_name("arm64_python.sh")
        done = subprocess.run([script, folder], capture_output=True, text=True, check=False, timeout=builds.TIMEOUT)
        if done.returncode:
            builds.missing(f"no arm64 Python can be had: {done.stderr[-1000:]}")
        (folder / "complete").touch()
    return folder


@pytest.fixture(scope="module")
def arm64(root: Path, tmp_path_factory: pytest.TempPathFactory) -> builds.Python:
    builds.tool("aarch64-linux-gnu-g++", package="g++-aarch64-linux-gnu")
    site = tmp_path_factory.mktemp("site")
    emulator = (builds.tool("qemu-aarch64", package="qemu-user"), "-L", str(root), "-E", f"PYTHONPATH={site}")
    python = builds.Python((*emulator, str(root / "usr" / "bin" / "python3")))
    suffix = python.run("-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))").strip()
    version = python.run("-c", "import sysconfig; print(sysconfig.get_python_version())").strip()
    if version != sysconfig.get_python_version():
        builds.missing(f"the arm64 Python is {version}, this one is another")
    wheel = builds.build_wheel(
        tmp_path_factory.mktemp("arm64"),
        f"cmake.toolchain-file={builds.ROOT}/cmake/aarch64-linux-gnu.cmake",
        f"cmake.define.ARM64_ROOT={root}",
        "cmake.python-hints=false",
        _PYTHON_HOST_PLATFORM="linux-aarch64",
        SETUPTOOLS_EXT_SUFFIX=suffix,
    )
    platforms = [f"--platform={name}" for name in PLATFORMS]
    only = ["--only-binary=:all:", f"--python-version={version}"]
    builds.pip("install", "--quiet", "--target", site, *platforms, *only, f"{wheel}[test]")
    return python


def test_it_is_an_arm64_build(arm64: builds.Python) -> None:
    assert arm64.isas() == ISAS
    assert arm64.run("-c", "import platform; print(platform.machine())").strip() == "aarch64"
    assert arm64.module().name.endswith("-aarch64-linux-gnu.so")


def test_kernels(arm64: builds.Python) -> None:
    names = (
        "linear",
        "attention",
        "rmsnorm",
        "rope",
        "silu_mul",
        "log_softmax",
        "sample",
        "topk",
        "embedding",
        "dequant",
    )
    assert arm64.passed(*builds.kernel_tests(*names), "-k", "not 513 and not any_small_shape") > 300


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("profile", ["fp32", "bf16", "int8"])
def test_golden_logits(arm64: builds.Python, profile: str, isa: str) -> None:
    assert arm64.logits_digest(profile, isa) == builds.golden_logits(profile)
