"""``samebits info``: what this machine can run, and which path was chosen."""

from __future__ import annotations

import json
import platform
from typing import Annotated

import typer

import samebits
from samebits import kernels
from samebits.kernels.context import usable_cpus
from samebits.numerics import PROFILES, VERSION


def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show instruction sets, the chosen path, threads and the numerics contract."""
    isas = kernels.available_isas()
    facts = {
        "samebits": samebits.__version__,
        "contract": VERSION,
        "profiles": list(PROFILES),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "threads": usable_cpus(),
        "isas": list(isas),
        "chosen": isas[-1],
        "instructions": kernels.dispatch_table()[isas[-1]],
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        if isinstance(value, list):
            value = " ".join(value)
        elif isinstance(value, dict):
            value = ", ".join(f"{k}: {v}" for k, v in value.items())
        typer.echo(f"{name:>12}  {value}")
    typer.echo("\nThreads and instruction set change speed, never a bit (docs/numerics.md).")
