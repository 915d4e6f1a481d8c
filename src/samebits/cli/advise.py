"""``samebits advise``: which approach fits, the configuration for it, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samebits.errors import InputError

if TYPE_CHECKING:
    from samebits.audit.advise import Needs


def advise(
    needs: Annotated[
        str | None,
        typer.Argument(
            help="YAML file with the answers; without it, the five questions are asked.", show_default=False
        ),
    ] = None,
    write: Annotated[str | None, typer.Option(help="Write the configuration to this file.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recommend an approach for a use case, with a ready configuration and the reason.

    Exit codes: 0 recommended, 2 usage or a wrong answer.
    """
    from samebits.audit.advise import advise as find
    from samebits.audit.advise import read_needs
    from samebits.audit.plain import plain

    found = find(_ask() if needs is None else read_needs(Path(needs)))
    if write is not None:
        _write(Path(write), found.config)
    if as_json:
        typer.echo(json.dumps(plain(found), indent=2))
        return
    rule = found.rule
    typer.echo(f"{rule.name} (level {rule.level})\n\n{rule.approach}\n\nWhy: {rule.because}\n")
    typer.echo(f"With each request: {json.dumps(dict(rule.request))}\n\n# {found.file}\n{found.config}")
    typer.echo(f"Use: {found.command}\nCheck: {rule.check}")


def _ask() -> Needs:
    from samebits.audit.advise import QUESTIONS, Needs

    if not sys.stdin.isatty():
        raise InputError(
            "is not given, and nobody is there to be asked", field="needs", remedy="Name a YAML file with the answers."
        )
    from rich.console import Console
    from rich.prompt import Prompt

    console = Console(stderr=True)  # standard output is for the advice, which may be JSON
    answers = {}
    for name, (wording, known) in QUESTIONS.items():
        try:
            answers[name] = Prompt.ask(wording, choices=list(known), console=console)
        except EOFError:
            raise InputError("no answer came", field=name, remedy="Answer it, or name a YAML file.") from None
    return Needs(**answers)  # type: ignore[arg-type]  # each is one of its choices


def _write(path: Path, config: str) -> None:
    if path.exists():
        raise InputError(f"{path} exists", field="write", remedy="Name a new file.")
    try:
        path.write_text(config, "utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error}", field="write", remedy="Name another file.") from error
