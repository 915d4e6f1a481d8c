"""``samebits doctor``: what on this machine, or after a script, can move bits."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from samebits.cli import EXIT_DIFFERENCE
from samebits.errors import InputError


def doctor(
    after: Annotated[
        str | None, typer.Option(help="Run this Python script first, and look at the process then.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what can move bits, with hazard and remedy; settings without effect come first.

    Exit codes: 0 looked, 1 a setting is without effect or has an invalid value, 2 usage.
    """
    from samebits.audit.doctor import examine

    if after is not None:
        # What the script prints is not part of our JSON.
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            _run(after)
    found = examine()
    if as_json:
        from samebits.audit.plain import plain

        document = plain(found)
        typer.echo(json.dumps(document, indent=2))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(show_lines=True)
        for name in ("what", "value", "state", "hazard", "remedy"):
            table.add_column(name, overflow="fold")
        for finding in found.findings:
            cost = f" Cost: {finding.cost}." if finding.remedy and finding.cost not in ("", "none") else ""
            table.add_row(
                f"{finding.kind} {finding.name}", finding.value, finding.state, finding.hazard, finding.remedy + cost
            )
        console = Console()
        console.print(table)
        for probe in found.probes:
            result = {None: "not tried", True: "bits CHANGED", False: "same bits"}[probe.differs]
            console.print(f"{probe.name}: {result} ({probe.detail})", highlight=False, markup=False, soft_wrap=True)
    if found.misled:
        raise typer.Exit(EXIT_DIFFERENCE)


def _run(script: str) -> None:
    if not Path(script).is_file():
        raise InputError(f"{script} does not exist", field="after", remedy="Name a Python script.")
    arguments, sys.argv = sys.argv, [script]
    folders = sys.path.copy()
    sys.path.insert(0, str(Path(script).resolve().parent))  # as Python itself does
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        if error.code:
            raise InputError(f"{script} ended with {error.code}", field="after", remedy="Correct the script.") from None
    except Exception as error:
        raise InputError(f"{script} failed: {error!r}", field="after", remedy="Correct the script.") from error
    finally:
        sys.argv = arguments
        sys.path[:] = folders
