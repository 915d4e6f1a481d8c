"""A processor without AVX runs the scalar kernels, to the same bits.

Emulated is Nehalem, of 2008: the oldest generation (x86-64-v2) that the wheels of numpy run on. The emulator refuses
what the processor lacks, so one instruction of AVX on the way would end the process.
"""

from __future__ import annotations

import platform
import signal
import subprocess
from pathlib import Path

import pytest

import builds

pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="NEON is part of the base of arm64"),
]


def emulator(processor: str) -> tuple[str, ...]:
    return builds.tool("qemu-x86_64", package="qemu-user"), "-cpu", processor


@pytest.fixture(scope="module")
def old(installed: builds.Python) -> builds.Python:
    return builds.Python((*emulator("Nehalem"), *installed.command))


def test_only_scalar_code_is_offered(old: builds.Python) -> None:
    assert old.isas() == ("scalar",)


def test_kernels(old: builds.Python) -> None:
    """Linear and attention in some shapes only: a fused multiply-add in software, itself emulated, is slow."""
    names = ("linear", "rmsnorm", "rope", "silu_mul", "log_softmax", "sample", "topk", "embedding", "dequant")
    slow = "not 513 and not any_small_shape"
    assert old.passed(*builds.kernel_tests(*names), "-k", slow) > 200


def test_golden_logits(old: builds.Python) -> None:
    assert old.logits_digest("int8", "scalar") == builds.golden_logits("int8")


def test_negative_control_avx2_is_refused(tmp_path: Path) -> None:
    source, program = tmp_path / "avx2.cc", tmp_path / "avx2"
    source.write_text('int main() { asm volatile("vpaddd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0"); }\n', "utf-8")
    builds.output(builds.tool("g++", package="g++"), source, "-static", "-o", program)
    statuses = {
        processor: subprocess.run([*emulator(processor), program], capture_output=True, check=False).returncode
        for processor in ("Nehalem", "Haswell")
    }
    assert statuses == {"Nehalem": -signal.SIGILL, "Haswell": 0}
