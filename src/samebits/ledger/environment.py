"""What answers are computed in: packages, system, processor, contract. Its digest is the environment id."""

from __future__ import annotations

import base64
import csv
import hashlib
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from samebits import kernels
from samebits.ledger.canonical import canonical, digest
from samebits.numerics import VERSION

# Distributions of which a version or a file can move a bit of an answer: text to ids, conversation to text, and which
# ids a grammar allows. samebits itself carries the kernels; numpy holds arrays, and draws no number into a result.
MOVING: Final = frozenset({"samebits", "tokenizers", "jinja2", "markupsafe", "llguidance"})

_OF_INSTALLERS: Final = (".dist-info/INSTALLER", ".dist-info/REQUESTED", ".dist-info/direct_url.json", ".pyc")


@dataclass(frozen=True)
class Package:
    """An installed distribution.

    Attributes:
        digest: of the digests of its files, as they were installed; of `MOVING` as they are now. None where they are
            not known.
    """

    version: str
    digest: str | None


@dataclass(frozen=True)
class Environment:
    """Everything that is said of an environment.

    Attributes:
        packages: normalised name → distribution.
        cpu: flags of the processor that the kernels know.
        isa: instruction sets that the kernels can use here.
    """

    contract: str
    python: str
    system: str
    machine: str
    libc: str
    cpu: tuple[str, ...]
    isa: tuple[str, ...]
    packages: dict[str, Package]


@cache
def environment() -> Environment:
    """That of this process."""
    return Environment(
        contract=VERSION,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=_system(),
        machine=platform.machine(),
        libc=" ".join(platform.libc_ver()).strip(),
        cpu=_flags(),
        isa=tuple(kernels.available_isas()),
        packages=_packages(),
    )


@cache
def environment_id() -> str:
    """``sha256:…`` of the environment's canonical JSON."""
    return digest(canonical(asdict(environment())))


def _system() -> str:
    try:
        release = platform.freedesktop_os_release()
        return f"{sys.platform} {release.get('PRETTY_NAME', release.get('NAME', ''))}".strip()
    except OSError:
        return f"{sys.platform} {platform.release()}"


_KNOWN: Final = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512dq",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "asimd",
    "asimddp",
)


def _flags() -> tuple[str, ...]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return ()
    line = next((line for line in text.splitlines() if line.lower().startswith(("flags", "features"))), "")
    present = set(line.partition(":")[2].split())
    return tuple(name for name in _KNOWN if name in present)


def _packages() -> dict[str, Package]:
    found = {}
    for distribution in metadata.distributions():
        if name := normalised(distribution.metadata["Name"] or ""):
            found[name] = Package(
                distribution.version, _own_files() if name == "samebits" else _files_of(name, distribution)
            )
    return dict(sorted(found.items()))


def _files_of(name: str, distribution: metadata.Distribution) -> str | None:
    record = distribution.read_text("RECORD")
    if name not in MOVING:
        return _files(record)  # to read all of them would take as long as to load a model
    return _files(record, lambda path: Path(str(distribution.locate_file(path))))


def _files(record: str | None, place: Callable[[str], Path] | None = None) -> str | None:
    """Digest of what a wheel brought, the same wherever it is installed: scripts, which hold paths, are left out.

    Args:
        place: where a file is, to look at what it holds now; else what was noted when it was installed is believed.
    """
    if record is None:
        return None
    kept = []
    for row in csv.reader(record.splitlines()):
        path, hashed = row[0], row[1] if len(row) > 1 else ""
        if hashed and not path.startswith("..") and not path.endswith(_OF_INSTALLERS):
            kept.append(f"{path} {hashed if place is None else _hashed(place(path))}\n")
    return digest("".join(sorted(kept)).encode())


def _hashed(path: Path) -> str:
    """What RECORD says of a file that was not changed."""
    try:
        found = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return "absent"
    return f"sha256={base64.urlsafe_b64encode(found).rstrip(b'=').decode()}"


def _own_files() -> str:
    """Digest of our own code, which in an editable installation no RECORD covers."""
    root = Path(kernels.__file__).parents[1]
    files = sorted(p for p in root.rglob("*") if p.suffix in (".py", ".so"))
    lines = [f"{p.relative_to(root).as_posix()} {digest(p.read_bytes())}\n" for p in files]
    core = getattr(sys.modules.get("samebits._core"), "__file__", None)
    if core is not None and not Path(core).is_relative_to(root):
        lines.append(f"_core {digest(Path(core).read_bytes())}\n")
    return digest("".join(lines).encode())


def normalised(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
