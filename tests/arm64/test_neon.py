"""The kernels of arm64, cross-compiled and run under emulation, give the bits of the reference.

What is emulated is the instruction set, so this checks bits and not speed. On an arm64 machine tests/kernels runs the
same kernels natively.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from samebits.kernels import dequantize, reference
from samebits.numerics import PROFILES, Profile, assert_bitwise_equal, exp32, first_difference, rope_tables

Array = NDArray[Any]
ROOT = Path(__file__).parents[2]
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
# Clang is its own cross compiler, with the libraries of GCC's. Debian's packages put the version into the name.
CLANGS = ("clang++", *(f"clang++-{version}" for version in range(30, 13, -1)))
ISAS, THREADS = ("scalar", "neon"), (1, 3)
PACKAGES = "Debian's packages: g++-aarch64-linux-gnu, qemu-user, clang-19"


@dataclass(frozen=True)
class Case:
    """One record of replay.cc and the outputs it has to give."""

    operation: str
    integers: list[int]
    arrays: list[Array]
    expected: list[Array]

    def record(self) -> bytes:
        parts = [struct.pack("<16sII", self.operation.encode(), len(self.integers), len(self.arrays))]
        parts.append(np.array(self.integers, "<i8").tobytes())
        for array in self.arrays:
            parts += [struct.pack("<Q", array.nbytes), array.tobytes()]
        return b"".join(parts)


def normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape, dtype=np.float32)


def extreme(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Finite floats of any pattern; half of them zeros, denormals, ends of ranges and points where bf16 rounds."""
    awkward = np.array(
        [0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, -1.1754944e-38, 3.4028235e38, -3.3895e38, 1.0], np.float32
    )
    edges = np.array([s * 2.0**-55 * (1 + e * 2.0**-9) for s in (1, -1) for e in (-2, -1, 0, 1)], np.float32)
    bits = rng.integers(0, 2**32, shape, dtype=np.uint32)
    bits = np.where(bits & np.uint32(0x7F800000) == 0x7F800000, bits ^ np.uint32(0x40000000), bits)
    pool = np.concatenate([awkward, edges])
    return np.where(rng.random(shape) < 0.5, rng.choice(pool, shape), bits.view(np.float32))


def linear_cases(rng: np.random.Generator) -> Iterator[Case]:
    # Rows of every tile height of both instruction sets, panels left over, K around blocks of 128, 512 and units.
    shapes = [(1, 100, 513), (2, 33, 130), (3, 50, 127), (4, 16, 512), (5, 17, 5), (6, 81, 257), (13, 19, 1025)]
    for profile in PROFILES:
        for i, (m, n, k) in enumerate([*shapes, (1, 1, 1), (7, 20, 200)]):
            make = extreme if k == 200 else normal
            x, w, out = make(rng, m, k), make(rng, n, k), normal(rng, m, n)
            expected = reference.linear(x, w, profile, out if i % 2 else None)
            integers = [PROFILES.index(profile), m, n, k, i % 2, n // 3]
            yield Case("linear", integers, [x, w, out], [expected])


def embedding_cases(rng: np.random.Generator) -> Iterator[Case]:
    for profile in PROFILES:
        for width in (1, 6, 65):
            w, ids = (extreme if width == 6 else normal)(rng, 37, width), rng.integers(0, 37, 9, np.int32)
            integers = [PROFILES.index(profile), ids.size, 37, width]
            yield Case("embedding", integers, [ids, w], [reference.embedding(ids, w, profile)])


def rmsnorm_cases(rng: np.random.Generator) -> Iterator[Case]:
    for width in (576, 1, 5, 16, 17, 100):
        for make in (normal, extreme):
            x, weight, eps = make(rng, 10, width), normal(rng, width), np.array([1e-5], np.float32)
            x[1] = 1e-45
            yield Case("rmsnorm", [10, width], [x, weight, eps], [reference.rmsnorm(x, weight, float(eps[0]))])


def attention_case(rng: np.random.Generator, profile: Profile, page_size: int, dim: int, make: Any) -> Case:
    """Two sequences in scattered pages: a chunk that begins in the middle, and one row over a longer context.

    The keys and values after the first sequence's seventh chunk row are NaN: the rows before them may not see them.
    """
    heads, kv, lengths = 4, 2, (270, 530)
    chunk = np.arange(250, 264, dtype=np.int32)
    last = np.array([529], np.int32)
    counts = [-(-length // page_size) for length in lengths]
    order = rng.permutation(np.arange(1, sum(counts) + 1, dtype=np.int32))
    tables = np.zeros((2, max(counts)), np.int32)
    tables[0, : counts[0]], tables[1, : counts[1]] = order[: counts[0]], order[counts[0] :]
    rope = rope_tables((10_000.0 ** (-np.arange(0, dim, 2) / dim)).astype(np.float32), max(lengths))
    qkv = [make(rng, length, heads + 2 * kv, dim) for length in lengths]
    qkv[0][chunk[7] :, heads:] = np.nan
    positions = [np.arange(length, dtype=np.int32) for length in lengths]
    slots = [tables[s, p // page_size].astype(np.int64) * page_size + p % page_size for s, p in enumerate(positions)]
    rotated, expected = [], []
    for s, wanted in enumerate((chunk, last)):
        cos, sin = rope.cos[: lengths[s]], rope.sin[: lengths[s]]
        q = reference.rotate(qkv[s][:, :heads], cos, sin)
        k = reference.rotate(qkv[s][:, heads : heads + kv], cos, sin)
        expected.append(reference.attention(q[wanted], k, qkv[s][:, heads + kv :], wanted, profile))
        rotated.append(q.reshape(lengths[s], -1))
    if make is normal:
        assert np.isfinite(expected[0][:7]).all()
        assert np.isnan(expected[0][7:]).all()
    rows = np.concatenate([chunk, last + np.int32(lengths[0])])
    arrays = [np.concatenate(qkv), np.concatenate(positions), np.concatenate(slots), rope.cos, rope.sin, rows]
    arrays += [np.concatenate([chunk, last]), np.array([0, chunk.size, rows.size], np.int32), tables]
    sizes = [sum(counts) + 1, page_size, kv, dim, heads, sum(lengths), rows.size, 2, tables.shape[1]]
    outputs = [np.concatenate(rotated), np.concatenate(expected).reshape(rows.size, -1)]
    return Case("attention", [PROFILES.index(profile), *sizes], arrays, outputs)


def attention_cases(rng: np.random.Generator) -> Iterator[Case]:
    for profile in ("fp32", "bf16"):
        for page_size, dim in ((16, 64), (1, 6), (4, 16), (64, 24)):
            yield attention_case(rng, profile, page_size, dim, normal)
        yield attention_case(rng, profile, 16, 6, extreme)


def silu_mul_cases(rng: np.random.Generator) -> Iterator[Case]:
    for width in (48, 1, 15, 17, 100):
        for make in (normal, extreme):
            gate_up = make(rng, 3, 2 * width)
            yield Case("silu_mul", [3, width], [gate_up], [reference.silu_mul(gate_up)])


def log_softmax_cases(rng: np.random.Generator) -> Iterator[Case]:
    for vocab in (1000, 1, 15, 16, 255, 256, 257, 5000):
        logits = normal(rng, 3, vocab) * np.float32(6)
        logits[1] -= 90 * (np.arange(vocab) % 2).astype(np.float32)  # around the end of exp
        yield Case("log_softmax", [3, vocab], [logits], [reference.log_softmax(logits)])


def exp_shifted_cases(rng: np.random.Generator) -> Iterator[Case]:
    for count, temperature in ((1000, 1.0), (1, 0.7), (8197, 0.3), (17, 1e-5)):
        logits = normal(rng, count) * np.float32(9)
        most, t = logits.max(), np.float32(temperature)
        with np.errstate(all="ignore"):
            expected = exp32((logits - most) / t)
        yield Case("exp_shifted", [count], [logits, np.array([most, t], np.float32)], [expected])


def sample_cases(rng: np.random.Generator) -> Iterator[Case]:
    draws, vocab = 40, 300
    for spread in (1, 8):
        logits, temperatures = normal(rng, draws, vocab) * np.float32(spread), rng.uniform(0.2, 2, draws)
        temperatures = np.where(np.arange(draws) % 10 == 9, 0, temperatures).astype(np.float32)
        top_k = rng.choice([0, 1, 5, 50], draws)
        p = np.stack([rng.choice([1.0, 0.9, 0.5], draws), rng.choice([0.0, 0.05], draws)], axis=1)
        numbers = np.stack([top_k, rng.integers(-(2**63), 2**63, draws), np.arange(draws), top_k % 3], axis=1)
        ids = [
            reference.sample(logits[i], float(temperatures[i]), int(top_k[i]), *p[i].tolist(), *numbers[i, 1:].tolist())
            for i in range(draws)
        ]
        integers = [draws, vocab, *numbers.ravel().tolist()]
        yield Case("sample", integers, [logits, temperatures, p], [np.array(ids, np.int32)])


def topk_cases(rng: np.random.Generator) -> Iterator[Case]:
    for vocab, k in ((50, 50), (1, 1), (300, 20)):
        logits = normal(rng, vocab).round(1)  # with ties
        best = reference.topk(logits[None], k)
        yield Case("topk", [vocab, k], [logits], [best.ids[0], best.values[0]])


def dequantize_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Against the compiled x86-64 code, which tests/kernels compares with gguf: plain char is unsigned on arm64."""
    sizes = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
    for name, nbytes in [*sizes.items(), ("F16", 2), ("BF16", 2), ("F32", 4)]:
        elements = 1 if nbytes <= 4 else 32 if nbytes < 144 else 256
        source, out = rng.integers(0, 256, 40 * nbytes, np.uint8), np.empty(40 * elements, np.float32)
        dequantize(name, source, out)
        yield Case("dequantize", [out.size], [np.frombuffer(name.encode(), np.uint8), source], [out])


BUILDERS: dict[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    "linear": linear_cases,
    "embedding": embedding_cases,
    "rmsnorm": rmsnorm_cases,
    "attention": attention_cases,
    "silu_mul": silu_mul_cases,
    "log_softmax": log_softmax_cases,
    "exp_shifted": exp_shifted_cases,
    "sample": sample_cases,
    "topk": topk_cases,
    "dequantize": dequantize_cases,
}


@pytest.fixture(scope="session")
def cases() -> dict[str, list[Case]]:
    return {name: list(build(np.random.default_rng(i))) for i, (name, build) in enumerate(BUILDERS.items())}


def tool(*names: str) -> str:
    """Return the path of the first program there is, also beside this Python; skip the test where there is none."""
    path = f"{os.environ['PATH']}{os.pathsep}{Path(sys.executable).parent}"
    found = filter(None, (shutil.which(name, path=path) for name in names))
    return next(found, None) or pytest.skip(f"{names[0]} is not installed ({PACKAGES})")


def checked(command: Sequence[str | Path], timeout: int) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    said = done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0, f"{command[0]}: exit status {done.returncode}\n{said}"


@pytest.fixture(scope="session", params=["gcc", pytest.param("clang", marks=pytest.mark.build)])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels of the checkout for arm64 with replay.cc, linked statically: the emulator needs no libraries."""
    tool(EMULATOR)
    cmake, compiler = tool("cmake"), tool(COMPILER)
    target = []
    if request.param == "clang":
        compiler, target = tool(*CLANGS), ["--target=aarch64-linux-gnu"]
    build = tmp_path_factory.mktemp("arm64")
    system = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={compiler}"]
    flags = [f"-DCMAKE_CXX_FLAGS={' '.join(target)}", "-DSAMEBITS_WERROR=ON", "-DCMAKE_BUILD_TYPE=Release"]
    checked([cmake, "-S", ROOT, "-B", build, *system, *flags], 120)
    jobs = str(len(os.sched_getaffinity(0)))
    checked([cmake, "--build", build, "--target", "samebits_kernels", "--parallel", jobs], 600)
    warnings = ["-Wall", "-Wextra", "-Werror"]
    include: list[str | Path] = ["-std=c++20", "-O1", "-static", "-pthread", "-I", ROOT / "csrc"]
    sources = [Path(__file__).with_name("replay.cc"), build / "libsamebits_kernels.a"]
    checked([compiler, *target, *warnings, *include, *sources, "-o", build / "replay"], 120)
    return build / "replay"


Replay = Callable[[list[Case], str, int], list[list[Array]]]


@pytest.fixture(scope="session")
def replay(program: Path) -> Replay:
    """Return a function that runs cases under emulation and returns the outputs of each, shaped as expected."""

    def run(records: list[Case], isa: str, threads: int) -> list[list[Array]]:
        inputs, results = program.with_name("cases"), program.with_name("results")
        inputs.write_bytes(b"".join(case.record() for case in records))
        checked([tool(EMULATOR), program, isa, str(threads), inputs, results], 300)
        outputs: list[list[Array]] = []
        data, at = results.read_bytes(), 0
        for case in records:
            outputs.append([])
            for expected in case.expected:
                (size,) = struct.unpack_from("<Q", data, at)
                assert size == expected.nbytes, case.operation
                found = np.frombuffer(data, expected.dtype, expected.size, at + 8)
                outputs[-1].append(found.reshape(expected.shape))
                at += 8 + size
        assert at == len(data)
        return outputs

    return run


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("operation", BUILDERS)
def test_same_bits_as_the_reference(
    operation: str, isa: str, threads: int, cases: dict[str, list[Case]], replay: Replay
) -> None:
    for case, outputs in zip(cases[operation], replay(cases[operation], isa, threads), strict=True):
        for output, expected in zip(outputs, case.expected, strict=True):
            sizes = case.integers[:10]
            assert_bitwise_equal(output, expected, f"{operation} {sizes} isa={isa} threads={threads}")


# The input whose bit is flipped, where it is not the first.
FLIPPED = {"embedding": 1, "dequantize": 1}


@pytest.mark.parametrize("operation", BUILDERS)
def test_negative_control_a_flipped_bit_of_an_input_is_told_apart(
    operation: str, cases: dict[str, list[Case]], replay: Replay
) -> None:
    case = cases[operation][0]
    if operation == "sample":  # a bit of the first draw's seed
        changed = replace(case, integers=[*case.integers[:3], case.integers[3] ^ 1 << 62, *case.integers[4:]])
    else:
        which = FLIPPED.get(operation, 0)
        arrays = [array.copy() for array in case.arrays]
        arrays[which].view(np.uint8).reshape(-1)[2] ^= 0x40  # of a float, the second bit of the significand
        changed = replace(case, arrays=arrays)
    (outputs,) = replay([changed], "neon", 1)
    assert any(first_difference(o, e) is not None for o, e in zip(outputs, case.expected, strict=True))
