"""``samebits tradeoff``: what reproducibility costs on this machine."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samebits.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from samebits.audit.prompts import Prompt
    from samebits.audit.tradeoff import Tradeoff

# Of the bundled prompts: short, and of several kinds, so that the time goes into answers.
CHOSEN = (
    "fact-explain",
    "math-steps",
    "label-topic",
    "json-person",
    "code-function",
    "write-story",
    "write-list",
    "translate",
)
BUNDLED = "bundled"


def tradeoff(
    model: Annotated[str, typer.Argument(help="smollm2, a GGUF file or a Hugging Face folder.")] = "smollm2",
    streams: Annotated[int, typer.Option(help="Requests at a time in the level with many.")] = 8,
    runs: Annotated[int, typer.Option(help="Of each prompt at each level in each round.")] = 4,
    rounds: Annotated[int, typer.Option(help="Turns of each approach.")] = 2,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer.")] = 32,
    prompts: Annotated[str, typer.Option(help="JSONL file of prompts, as for samebits audit.")] = BUNDLED,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result to this file.", show_default=False)
    ] = None,
    html: Annotated[str | None, typer.Option(help="Write a page with the chart.", show_default=False)] = None,
    svg: Annotated[str | None, typer.Option(help="Write the chart alone.", show_default=False)] = None,
) -> None:
    """Measure approaches side by side: how fast each is, and how often it repeats itself.

    Exit codes: 0 measured, 2 usage, 3 nothing could be compared. What cannot be measured here is said, with the reason.
    """
    from rich.console import Console

    from samebits.audit.tradeoff import Size, approaches, compare
    from samebits.audit.tradeoff import chart as charts

    size = Size(streams=streams, runs=runs, rounds=rounds, max_tokens=max_tokens)
    for field, file in (("json", json_file), ("html", html), ("svg", svg)):
        if file is not None and not Path(file).resolve().parent.is_dir():
            raise InputError("its folder does not exist", field=field, remedy="Create it, or name another file.")
    if html is not None or svg is not None:
        from samebits.audit.report.draw import check_drawing

        check_drawing(charts.WITHOUT)
    asked = _prompts(prompts)
    console = Console()
    said = Console(stderr=True)
    work = compare(
        model,
        approaches(model, streams),
        asked,
        size,
        lambda line: said.print(line, highlight=False, markup=False, soft_wrap=True),
    )
    result = asyncio.run(work)
    _show(console, result)
    facts = _facts()
    if json_file is not None:
        Path(json_file).write_text(json.dumps(_document(result, asked, facts), indent=2) + "\n", "utf-8")
    if svg is not None:
        Path(svg).write_text(charts.svg(result), "utf-8")
    if html is not None:
        Path(html).write_text(charts.page(result, facts), "utf-8")


def _prompts(name: str) -> tuple[Prompt, ...]:
    from samebits.audit.prompts import read_prompts

    found = read_prompts(name)
    return tuple(p for p in found if p.id in CHOSEN) if name == BUNDLED else found


def _show(console: Console, result: Tradeoff) -> None:
    from rich.table import Table

    from samebits.audit.tradeoff.chart import cells

    table = Table(title=f"{result.model}: speed, and pairs of runs that are equal")
    many = f"× {result.size.streams}"
    table.add_column("approach", no_wrap=True)
    for name in ("tok/s", "ratio", many, "ratio", "same text", "same bits"):
        table.add_column(name, justify="right")
    for row in result.rows:
        figures = cells(result, row)
        table.add_row(row.approach.name, *(figures or ["not measured"]))
    console.print(table)
    for row in result.rows:
        if row.reason is not None:
            said = f"{row.approach.name} is not measured: {row.reason}"
            console.print(said, highlight=False, markup=False, soft_wrap=True)


def _facts() -> dict[str, str]:
    """Machine, versions and date."""
    from samebits import __version__
    from samebits.audit.doctor.facts import gather

    found = gather()
    versions = {name: found.packages[name] for name in ("numpy", "torch", "transformers") if name in found.packages}
    return {
        "processor": f"{found.cpu}, {found.cpus} usable ({', '.join(found.isa)})",
        "versions": ", ".join(f"{name} {value}" for name, value in ({"samebits": __version__} | versions).items()),
        "date": time.strftime("%Y-%m-%d"),
    }


def _document(result: Tradeoff, prompts: tuple[Prompt, ...], facts: dict[str, str]) -> dict[str, Any]:
    from samebits.audit.plain import plain
    from samebits.audit.prompts import prompts_digest
    from samebits.audit.tradeoff import PUBLISHED

    rows = [{"relative": result.relative(row), **vars(row)} for row in result.rows]
    return {
        "tradeoff": 1,
        "model": result.model,
        "size": plain(result.size),
        "prompts": prompts_digest(prompts),
        "prompt_ids": [p.id for p in prompts],
        "run": facts,
        "rows": plain(rows),
        "published": plain(PUBLISHED),
    }
