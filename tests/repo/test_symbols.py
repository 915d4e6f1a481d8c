"""What an object file of one instruction set may not do to the rest of the program.

The linker keeps one copy of an inline function that several object files define (a weak symbol). Were that copy the one
compiled for AVX-512, a machine without it would run it. So the files of an instruction set define no weak symbol, and
the files that every machine runs hold no instruction beyond the base.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
# Symbols that the linker may take from any file: weak (W, V) and, of GCC, unique (u).
SHARED_SYMBOL = re.compile(r"^[0-9a-f]+ ([WVu]) (.*)$", re.MULTILINE)
# Registers, and the encoding of 128-bit operations, that the base instruction set of x86-64 does not have.
BEYOND_BASE = re.compile(r"^\s*[0-9a-f]+:\s+(?:v[a-z0-9]+ .*|.*%[yz]mm\d.*)$", re.MULTILINE)
X86 = platform.machine() in ("x86_64", "AMD64")


def tool(name: str) -> str:
    path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    return path or pytest.skip(f"{name} is not installed")


def output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=6 * PATIENCE_S)
    said = done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0, f"{command[0]}: exit status {done.returncode}\n{said}"
    return done.stdout


def shared_symbols(path: Path) -> list[str]:
    return [m[2] for m in SHARED_SYMBOL.finditer(output(tool("nm"), "--defined-only", "--demangle", path))]


def instructions_beyond_base(path: Path) -> list[str]:
    listing = output(tool("objdump"), "--disassemble", "--no-show-raw-insn", path)
    assert "ret" in listing, f"{path.name}: nothing was disassembled"
    return [m[0].strip() for m in BEYOND_BASE.finditer(listing)]


def is_of_an_instruction_set(path: Path) -> bool:
    return path.name.startswith("isa_") and not path.name.startswith("isa_scalar")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Object files of the kernels: those of the installed build where they are current, else of a new one."""
    for name in ("nm", "objdump"):
        tool(name)
    newest = max(path.stat().st_mtime for path in [ROOT / "CMakeLists.txt", *(ROOT / "csrc").iterdir()])
    for build in ROOT.glob("build/*/CMakeFiles/samebits_kernels.dir"):
        built = sorted(build.rglob("*.o"))
        if len(built) == (10 if X86 else 7) and min(path.stat().st_mtime for path in built) > newest:
            return built
    build = tmp_path_factory.mktemp("symbols")
    cmake = tool("cmake")
    output(cmake, "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release")
    jobs = str(len(os.sched_getaffinity(0)))
    output(cmake, "--build", build, "--target", "samebits_kernels", "--parallel", jobs)
    return sorted(build.rglob("*.o"))


def test_no_symbol_of_an_instruction_set_is_shared(objects: list[Path]) -> None:
    files = [path for path in objects if path.name.startswith("isa_")]
    assert len(files) == (5 if X86 else 2)
    found = [f"{path.name}: {symbol}" for path in files for symbol in shared_symbols(path)]
    assert not found, "\n".join(found)


@pytest.mark.skipif(not X86, reason="NEON is part of the base instruction set of arm64")
def test_every_machine_can_run_the_rest(objects: list[Path]) -> None:
    files = [path for path in objects if not is_of_an_instruction_set(path)]
    names = {path.name.split(".")[0] for path in files}
    assert names >= {"dispatch", "thread_pool", "tensor", "sample", "dequant", "isa_scalar"}
    found = [f"{path.name}: {line}" for path in files for line in instructions_beyond_base(path)[:3]]
    assert not found, "\n".join(found)


@pytest.mark.skipif(not X86, reason="NEON is part of the base instruction set of arm64")
def test_negative_control_vector_code_is_seen(objects: list[Path]) -> None:
    for path in filter(is_of_an_instruction_set, objects):
        assert len(instructions_beyond_base(path)) > 1000, path.name


def test_negative_control_a_shared_symbol_is_seen(tmp_path: Path) -> None:
    tool("nm")
    source, target = tmp_path / "weak.cc", tmp_path / "weak.o"
    source.write_text("inline __attribute__((noinline)) int f(int x) { return x; }\nint (*g)(int) = f;\n", "utf-8")
    output(tool("c++"), "-c", source, "-o", target)
    assert shared_symbols(target) == ["f(int)"]
