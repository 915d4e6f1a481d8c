"""The command line in this process: a new one takes a second each time."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

from samebits.cli import _run


@dataclass(frozen=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str


def samebits(*arguments: str | Path) -> Ran:
    """What a verb printed, and its exit code."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = _run([str(argument) for argument in arguments])
    return Ran(code, out.getvalue(), error.getvalue())
