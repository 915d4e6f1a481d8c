"""The wheel holds the whole package, runs away from the checkout and on any processor of its architecture."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import builds
from samebits.numerics import PROFILES

pytestmark = pytest.mark.build
# Libraries of every Linux with glibc. The C++ library is linked in.
SYSTEM = re.compile(r"ld-linux-.*|lib(c|m|pthread)\.so\.\d")
# A piece of the module in the linker's map: section, address, size, file; after a long name of a section the line ends.
PIECE = re.compile(r"^ (\.text\S*)\s+(0x[0-9a-f]+)\s+(0x[0-9a-f]+) (\S+)$", re.MULTILINE)
# Instructions beyond the base of x86-64: those of the VEX and EVEX encodings begin with v.
BEYOND_BASE = re.compile(r"^\s*([0-9a-f]+):\s+(v[a-z0-9]+ .*|.*%[yz]mm\d.*)$", re.MULTILINE)
INSTRUCTION_SET = re.compile(r"/isa_(?!scalar)\w+\.cc\.o\b")
QUESTION = ["--chat", "--prompt", "Tell me how a bridge carries its load.", "--max-tokens", "20", "--json"]


def test_it_holds_every_file_of_the_package(wheel: Path) -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "src/samebits"], cwd=builds.ROOT, capture_output=True, text=True, check=True
    )
    wanted = {name.removeprefix("src/") for name in listing.stdout.split("\0") if name}
    assert len(wanted) > 50
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert sorted(wanted - held) == []
    [module] = held - wanted
    assert re.fullmatch(r"samebits/_core\.(cpython-\d+-\w+-linux-gnu|abi3)\.so", module)


def test_its_tag_names_the_oldest_glibc(wheel: Path) -> None:
    found = re.fullmatch(
        rf"samebits-[\d.]+-cp3\d+-(cp3\d+|abi3)-manylinux_2_(\d+)_{platform.machine()}\.whl", wheel.name
    )
    assert found, wheel.name
    assert int(found[2]) <= int(platform.libc_ver()[1].split(".")[1])


def test_it_needs_only_the_c_library(installed: builds.Python) -> None:
    said = builds.output(builds.tool("readelf", package="binutils"), "--dynamic", installed.module())
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", said)
    assert [name for name in needed if not SYSTEM.fullmatch(name)] == []
    assert "libc.so.6" in needed


def asked(python: builds.Python, *arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(python.run("-m", "samebits", *arguments))
    return answer


def test_its_command_gives_the_bits_of_the_checkout(installed: builds.Python) -> None:
    question = ["generate", builds.model(), *QUESTION]
    assert installed.module().is_relative_to(Path(installed.command[0]).parents[1])
    here = builds.Python((sys.executable,))
    assert asked(installed, "info", "--json") == asked(here, "info", "--json")
    answer = asked(installed, *question)
    golden = json.loads(builds.GOLDEN.read_text("utf-8"))
    assert answer["token_ids"][:12] == golden["profiles"]["bf16"]["first_tokens"]
    assert answer == asked(here, *question)


def test_golden_logits(installed: builds.Python) -> None:
    for profile in PROFILES:
        assert installed.logits_digest(profile, installed.isas()[-1]) == builds.golden_logits(profile), profile


def pieces_of_instruction_sets(link_map: str) -> list[range]:
    pieces = PIECE.findall(re.sub(r"^( \.text\S*)\n", r"\1", link_map, flags=re.MULTILINE))
    assert len(pieces) > 100
    return [
        range(int(at, 16), int(at, 16) + int(size, 16)) for _, at, size, file in pieces if INSTRUCTION_SET.search(file)
    ]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="NEON is part of the base of arm64")
def test_only_files_of_an_instruction_set_hold_vector_code(wheel: Path, installed: builds.Python) -> None:
    """In the linked module, so of every object and library that went into it."""
    own = pieces_of_instruction_sets(wheel.with_name("link.map").read_text("utf-8"))
    objdump = builds.tool("objdump", package="binutils")
    listing = builds.output(objdump, "--disassemble", "--no-show-raw-insn", installed.module())
    vector_code = [(int(at, 16), line) for at, line in BEYOND_BASE.findall(listing)]
    within = [line for at, line in vector_code if any(at in piece for piece in own)]
    beyond = [f"{at:x}: {line}" for at, line in vector_code if not any(at in piece for piece in own)]
    assert beyond[:10] == []
    assert len(within) > 10_000, "the map does not fit the module"
