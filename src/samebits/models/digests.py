"""The digest of model files.

One file: ``sha256:`` of its bytes. Several: the digest of one ASCII line ``<sha256 in hex>  <file name>\\n`` per file,
in the order given, which is the output of the ``sha256sum`` command and can be checked with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from samebits.numerics import digest_bytes


def digest_files(paths: Sequence[Path]) -> str:
    """Digest of files by the rule of this module."""
    hashes = [_sha256(path) for path in paths]
    if len(paths) == 1:
        return f"sha256:{hashes[0]}"
    lines = "".join(f"{digest}  {path.name}\n" for digest, path in zip(hashes, paths, strict=True))
    return digest_bytes(lines.encode())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
