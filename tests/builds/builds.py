"""Builds of samebits beside the one under development, and Pythons that import them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

import pytest

from samebits.errors import ModelError
from samebits.models.load import find_smollm2

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "smollm2.json"
TIMEOUT = 1200
# The programs of this environment (cmake, ninja) before those of the system.
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def missing(reason: str) -> NoReturn:
    """Skip the test; in CI, where .ci/run has installed all that these tests use, fail it."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def tool(*names: str, package: str) -> str:
    """Return the path of the first program there is."""
    found = (shutil.which(name, path=PATH) for name in names)
    return next(filter(None, found), None) or missing(f"{names[0]} is not installed (Debian's package {package})")


def model() -> str:
    """Return the path of the demo's model."""
    try:
        return str(find_smollm2())
    except ModelError as error:
        missing(str(error))


def output(*command: str | Path, **environment: str) -> str:
    """Run a command away from the checkout; return what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
            cwd=folder,
            env=os.environ | {"PATH": PATH} | environment,
        )
    said = done.stdout[-6000:] + done.stderr[-6000:]
    assert done.returncode == 0, f"{command[0]}: exit status {done.returncode}\n{said}"
    return done.stdout


def pip(*arguments: str | Path, **environment: str) -> None:
    output(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, **environment)


def build_wheel(folder: Path, *settings: str, **environment: str) -> Path:
    """Build a wheel of the checkout, unstripped; a compiler's warning is an error."""
    settings = (f"build-dir={folder}/build", "install.strip=false", "cmake.define.SAMEBITS_WERROR=ON", *settings)
    options = [f"-C{setting}" for setting in settings]
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, *options, ROOT, **environment)
    [path] = folder.glob("*.whl")
    return path


def golden_logits(profile: str) -> str:
    digest: str = json.loads(GOLDEN.read_text("utf-8"))["profiles"][profile]["logits"]
    return digest


@dataclass(frozen=True)
class Python:
    """The beginning of a command that starts a Python."""

    command: tuple[str, ...]

    def run(self, *arguments: str | Path) -> str:
        return output(*self.command, *arguments)

    def module(self) -> Path:
        """Return the file of the compiled module that this Python imports."""
        return Path(self.run("-c", "import samebits._core; print(samebits._core.__file__)").strip())

    def isas(self) -> tuple[str, ...]:
        return tuple(self.run("-c", "import samebits.kernels as k; print(*k.available_isas())").split())

    def passed(self, *arguments: str) -> int:
        """Run tests of the checkout with this Python, which all have to pass; return how many."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            options = ["-q", "-p", "no:cacheprovider", "--rootdir", ROOT, "-c", ROOT / "pyproject.toml"]
            self.run("-m", "pytest", *options, "--junitxml", report, *arguments)
            counts = next(ElementTree.parse(report).getroot().iter("testsuite")).attrib
        assert counts["skipped"] == "0", f"{counts['skipped']} tests were skipped"
        return int(counts["tests"])

    def logits_digest(self, profile: str, isa: str) -> str:
        """Return the digest that the golden file calls logits."""
        return self.run("-c", LOGITS, model(), profile, isa).strip()


LOGITS = """
import sys
from samebits import LLM
from samebits.numerics import digest_array
path, profile, isa = sys.argv[1:]
with LLM(path, profile, isa=isa, kv_memory=1 << 26) as llm:
    ids = llm.tokenizer.encode("The same question deserves the same answer, 1,000 times out of 1,000.")
    print(digest_array(llm.logits(ids)))
"""


def kernel_tests(*names: str) -> list[str]:
    return [str(ROOT / "tests" / "kernels" / f"test_{name}.py") for name in names]


def install(wheel: Path, folder: Path) -> Python:
    """Install a wheel in a new environment, which takes other packages from this one.

    A line in a .pth file makes those importable without what an editable install of samebits among them would start.
    """
    output(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--quiet", "--no-deps", wheel)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return Python((str(python),))
