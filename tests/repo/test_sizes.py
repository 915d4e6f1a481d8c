"""Files stay small, and an operation has one name everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 500
CODE = {".py", ".cc", ".h", ".pyi"}
# Operations without a body per instruction set: integers, comparisons and copies, in plain C++.
PLAIN_SOURCES = {"embedding": "tensor.cc", "topk": "sample.cc", "sample": "sample.cc"}


def source_files() -> list[Path]:
    folders = ("src", "csrc", "tests", "benchmarks", "examples")
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in CODE and p.is_file())


def too_long(path: Path) -> bool:
    return len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES


def test_no_source_file_is_long() -> None:
    files = source_files()
    assert {"src", "csrc", "tests"} <= {p.relative_to(ROOT).parts[0] for p in files}
    assert [str(p.relative_to(ROOT)) for p in files if too_long(p)] == []


def test_negative_control_a_long_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("\n" * MOST_LINES + "x = 1\n", encoding="utf-8")
    assert too_long(path)


def operations() -> list[str]:
    return sorted(p.stem for p in (ROOT / "src/samebits/kernels/reference").glob("*.py") if p.stem != "__init__")


@pytest.mark.parametrize("operation", operations())
def test_an_operation_has_a_reference_a_kernel_and_a_test(operation: str) -> None:
    assert (ROOT / "tests" / "kernels" / f"test_{operation}.py").is_file()
    body = PLAIN_SOURCES.get(operation, f"{operation}-inl.h")
    assert (ROOT / "csrc" / body).is_file(), body


def test_every_kernel_body_has_a_reference() -> None:
    shared = {"math"}  # exp and the lane tree, whose definition is samebits.numerics.exact
    bodies = {p.name.removesuffix("-inl.h") for p in (ROOT / "csrc").glob("*-inl.h")} - shared
    assert bodies == set(operations()) - PLAIN_SOURCES.keys()
