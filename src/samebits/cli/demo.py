"""``samebits demo``: one prompt, many times, under a changing load; what stays the same and what does not."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from samebits.cli import EXIT_DIFFERENCE
from samebits.counted import counted
from samebits.errors import InputError, shown
from samebits.numerics import PROFILES

if TYPE_CHECKING:
    from samebits.audit.repeat import Row

PROMPT = "Explain in two sentences why the sky is blue, then name one more question that a curious child might ask."


def demo(
    runs: Annotated[int, typer.Option(help="Completions of the same prompt in each mode.")] = 200,
    profile: Annotated[str | None, typer.Option(help="Only this profile beside the vendor's matmul.")] = None,
    json_file: Annotated[str | None, typer.Option("--json", help="Write the rows to this file.")] = None,
    model: Annotated[str, typer.Option(help="A GGUF file, a Hugging Face folder, or smollm2.")] = "smollm2",
    max_tokens: Annotated[int, typer.Option(help="Tokens of each completion.")] = 48,
    threads: Annotated[int | None, typer.Option(help="One per CPU when not given.", show_default=False)] = None,
) -> None:
    """Send one prompt many times among random other requests and count the different answers.

    Exit code 0 only if every samebits row is one unique completion with bit-equal log-probabilities.
    """
    from samebits.audit.repeat import measure_mode, mode_name

    if runs < 2:
        raise InputError(f"{runs} cannot be compared", field="runs", remedy="Give at least 2.")
    if profile is not None and profile not in PROFILES:
        raise InputError(f"{profile!r} is unknown", field="profile", remedy=f"Choose one of: {', '.join(PROFILES)}.")
    if json_file is not None:
        _check_writable(Path(json_file))
    rows: list[Row] = []
    bar = _Console(stderr=True)  # what is not the result has no part in where that goes
    with Progress(
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=bar,
        disable=not bar.is_terminal,
        transient=True,
    ) as progress:
        for mode in ("vendor", *((profile,) if profile else PROFILES)):
            task = progress.add_task(mode_name(mode), total=runs)
            rows.append(
                measure_mode(
                    model,
                    mode,
                    prompt=PROMPT,
                    runs=runs,
                    max_tokens=max_tokens,
                    threads=threads,
                    baseline=rows[0] if rows else None,
                    advance=partial(progress.advance, task),
                )
            )
    try:  # the file first: a terminal that goes away does not take the measurement with it, nor the other way round
        if json_file is not None:
            document = {"prompt": PROMPT, "model": model, "runs": runs, "rows": [asdict(row) for row in rows]}
            _write(Path(json_file), json.dumps(document, indent=2) + "\n")
    finally:
        _show(_Console(), rows)
    if not all(row.reproducible for row in rows[1:]):
        raise typer.Exit(EXIT_DIFFERENCE)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Passes it on, where rich would exit with the code of a difference."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _check_writable(path: Path) -> None:
    """Raises InputError for what ``_write`` could not write, before hours have gone into it. Leaves all as it is."""
    try:
        is_new = not path.exists()
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{shown(str(path))} cannot be written ({error.strerror})", field="json", remedy="Name another file."
    )


def _show(console: Console, rows: list[Row]) -> None:
    console.print(_table(rows))
    console.print(
        "unique: different texts; diverges: first token that differs; vendor: numpy's BLAS in bf16, as servers"
    )
    for line in _verdict(rows):
        console.print(line, highlight=False)


def _table(rows: list[Row]) -> Table:
    # Without an edge it fits the 80 columns of a plain terminal.
    table = Table(title="The same prompt, at temperature 0, among other requests", show_edge=False, pad_edge=False)
    for name in ("mode", "runs", "unique", "modal", "diverges", "logprob diff", "tok/s", "speed"):
        table.add_column(name, justify="left" if name == "mode" else "right")
    for row in rows:
        table.add_row(
            row.mode,
            str(row.completions),
            str(row.unique),
            f"{row.modal_share:.1%}",
            "none" if row.first_divergence is None else f"token {row.first_divergence}",
            "0, bitwise" if row.logprob_variants == 1 else f"{row.max_logprob_diff:.2g}",
            f"{row.tokens_per_s:.0f}",
            f"{row.relative_speed:.2f}x",
        )
    return table


def _verdict(rows: list[Row]) -> list[str]:
    vendor, ours = rows[0], rows[1:]
    lines = []
    if vendor.logprob_variants == 1:
        lines.append("The vendor's matmul happened to give the same bits each time; ask for more --runs.")
    elif vendor.unique == 1:
        lines.append(
            "The vendor's matmul happened to give 1 text here; its log-probabilities took "
            f"{counted(vendor.logprob_variants, 'different value')} in bits, so a text differs sooner or later."
        )
    else:
        lines.append(f"The vendor's matmul gave {counted(vendor.unique, 'different text')} to one question.")
    if all(row.reproducible for row in ours):
        lines.append("Every samebits row: 1 text, and every bit of every log-probability the same.")
    else:
        failed = ", ".join(row.mode for row in ours if not row.reproducible)
        lines.append(f"FAILED: not bit-equal: {failed}.")
    sizes = [f"{row.smallest_batch} to {row.largest_batch}" for row in rows]
    lines.append(f"Batch sizes that the prompt shared, by row: {'; '.join(sizes)}.")
    return lines
