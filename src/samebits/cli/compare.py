"""``samebits compare``: whether two targets, or one at two dates, answer alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from samebits.cli import EXIT_DIFFERENCE
from samebits.cli.report import Outputs
from samebits.errors import InputError, MeasurementError


def compare(
    journals: Annotated[list[str], typer.Argument(help="One journal of two targets, or two, the earlier one first.")],
    first: Annotated[str | None, typer.Option(help="Target of the first side.", show_default=False)] = None,
    second: Annotated[str | None, typer.Option(help="Target of the second side.", show_default=False)] = None,
    unit: Annotated[str, typer.Option(help="What the test counts: characters or token-ids.")] = "characters",
    level: Annotated[float, typer.Option(help="Chance of a false alarm.")] = 0.05,
    floor: Annotated[float, typer.Option(help="Share of moved runs below which nothing is called different.")] = 0.02,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the comparison to this file.", show_default=False)
    ] = None,
) -> None:
    """Compare the answers in journals of `samebits audit`. Nothing is measured or sent.

    Exit codes: 0 no difference seen, or one below the floor, 1 different, 2 usage, 3 too few runs.
    """
    from samebits.audit.compare import Unit
    from samebits.audit.compare import compare as find
    from samebits.audit.plain import plain
    from samebits.audit.sides import read_sides, verdict

    units: dict[str, Unit] = {"characters": "characters", "token-ids": "token ids"}
    if unit not in units:
        raise InputError(f"{unit!r} is unknown", field="unit", remedy=f"Give {' or '.join(units)}.")
    outputs = Outputs(json=json_file)
    outputs.check(**{f"journal {number}": name for number, name in enumerate(journals, 1)})
    sides = read_sides([Path(name) for name in journals], first, second)
    found = find(
        sides.first.observations, sides.second.observations, seed=0, unit=units[unit], level=level, floor=floor
    )
    found = replace(found, targets=(sides.first.name, sides.second.name))
    said = verdict(found, sides)
    if json_file is not None:
        document = {"verdict": said, "different": found.different, **sides.document(), "comparison": plain(found)}
        Path(json_file).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    typer.echo(f"{sides.first.name} and {sides.second.name}")
    for sentence in said:
        typer.echo(sentence)
    if found.different:
        raise typer.Exit(EXIT_DIFFERENCE)
    if found.mmd is None:
        raise MeasurementError("no prompt has two answers on both sides, so nothing was compared")
