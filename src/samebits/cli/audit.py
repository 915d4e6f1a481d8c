"""``samebits audit``: how reproducible a target is, and what moves its answers."""

from __future__ import annotations

import asyncio
import math
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samebits.cli import EXIT_DIFFERENCE
from samebits.cli.report import Outputs
from samebits.counted import counted, verb
from samebits.errors import InputError, MeasurementError

if TYPE_CHECKING:
    from rich.console import Console

    from samebits.audit.carry_out import Measured
    from samebits.audit.journal import Journal
    from samebits.audit.plan import Plan
    from samebits.audit.result import Result
    from samebits.audit.targets import TargetSpec

Text = str | None


def _option(meaning: str, **others: Any) -> Any:
    return typer.Option(help=meaning, **others)


def audit(
    target: Annotated[str, typer.Argument(help="http://HOST:PORT, model:PATH, hf:PATH, or a .yaml file with several.")],
    model: Annotated[
        Text, _option("Model of the server; found by itself where there is one.", show_default=False)
    ] = None,
    prompts: Annotated[str, _option("JSONL file of prompts, or the bundled set.")] = "bundled",
    runs: Annotated[int, _option("Runs of each prompt under each combination of the levels below.")] = 10,
    concurrency: Annotated[str, _option("Levels: requests in flight, by commas.")] = "1,8,32",
    load: Annotated[str, _option("Random other requests: off, on, both.")] = "off",
    prefix: Annotated[str, _option("Prefix cache: as-is, cold, warm, both.")] = "as-is",
    streaming: Annotated[str, _option("Answers as events: off, on, both.")] = "off",
    seeded: Annotated[str, _option("The seed: fixed, or both: with it and without.")] = "fixed",
    times: Annotated[int, _option("Blocks of time that the runs are spread over.")] = 2,
    orders: Annotated[int, _option("Orders in which the prompts are asked.")] = 2,
    temperature: Annotated[float, _option("Sampling temperature; 0 is greedy.")] = 0.0,
    top_p: Annotated[float | None, _option("Nucleus sampling; not sent when not given.", show_default=False)] = None,
    own_sampling: Annotated[
        bool, typer.Option("--own-sampling", help="Send no temperature: the target's own.")
    ] = False,
    seed: Annotated[int, _option("The seed that is sent.")] = 7,
    max_tokens: Annotated[int, _option("Most tokens of an answer.")] = 128,
    top_logprobs: Annotated[
        int, _option("Best tokens to ask for, or fewer where a server refuses; -1: no log-probabilities.")
    ] = 5,
    key_env: Annotated[Text, _option("Variable that holds the API key.", show_default=False)] = None,
    key_file: Annotated[Text, _option("File that holds the API key.", show_default=False)] = None,
    price_in: Annotated[
        float | None, _option("Price of a million tokens read, for the plan.", show_default=False)
    ] = None,
    price_out: Annotated[float | None, _option("Price of a million tokens written.", show_default=False)] = None,
    timeout: Annotated[float, _option("Seconds after which an answer is given up.")] = 120.0,
    journal: Annotated[Text, _option("File to note everything in, and to go on from.", show_default=False)] = None,
    resend: Annotated[bool, typer.Option("--resend", help="Ask again what an interruption left open.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    json_file: Annotated[
        Text, typer.Option("--json", help="Write the result to this file.", show_default=False)
    ] = None,
    html: Annotated[Text, _option("Write a page that stands alone to this file.", show_default=False)] = None,
    markdown: Annotated[Text, _option("Write Markdown to this file.", show_default=False)] = None,
    junit: Annotated[Text, _option("Write JUnit XML to this file.", show_default=False)] = None,
    fail_under: Annotated[
        float | None, _option("Exit with 1 if the exact-repeat rate of texts is below: 0 to 1.", show_default=False)
    ] = None,
) -> None:
    """Measure how often a target repeats itself, and what moves its answers.

    Exit codes: 0 measured (and not below --fail-under), 1 below --fail-under, 2 usage, 3 not measured.
    """
    from rich.console import Console

    from samebits.audit.plan import Experiment, Plan
    from samebits.audit.prompts import read_prompts
    from samebits.audit.report.document import document_of
    from samebits.audit.targets import Prices, read_targets

    _check_limits(fail_under, timeout)
    outputs = Outputs(json=json_file, html=html, markdown=markdown, junit=junit)
    asked = None if prompts == "bundled" else prompts
    outputs.check(target=target, prompts=asked, key_file=key_file, journal=journal)
    if (price_in is None) != (price_out is None):
        raise InputError("is given without the other", field="price_in", remedy="Give --price-in and --price-out.")
    prices = None if price_in is None or price_out is None else Prices(price_in, price_out)
    specs = read_targets(target, model=model, key_env=key_env, key_file=key_file, prices=prices)
    experiment = Experiment(
        runs=runs,
        concurrency=_integers("concurrency", concurrency),
        load=_levels("load", load),
        prefix=() if prefix == "as-is" else _levels("prefix", prefix),
        streaming=_levels("streaming", streaming),
        seeds=_levels("seed", seeded),
        times=times,
        orders=orders,
        temperature=None if own_sampling else temperature,
        top_p=top_p,
        seed=seed,
        max_tokens=max_tokens,
        top_logprobs=None if top_logprobs == -1 else top_logprobs,
    )
    plan = Plan(experiment, read_prompts(prompts))
    console = Console()
    _show_plan(console, plan, specs)
    if dry_run:
        return
    # With the process in its name: two audits may begin in one second.
    path = Path(journal or time.strftime(f"samebits-audit-%Y%m%d-%H%M%S-{os.getpid()}.jsonl"))
    measured, results = _run(console, plan, specs, path, timeout=timeout, resend=resend)
    # The files first: a terminal that goes away does not take the result with it.
    if outputs != Outputs():
        command = shlex.join(["samebits", *sys.argv[1:]])
        outputs.write(document_of(plan, measured, results, command=command, journal=path.name, fail_under=fail_under))
    for found, result in zip(measured, results, strict=True):
        _show(console, found, result)
    if fail_under is not None and not _passes(console, results, fail_under):
        raise typer.Exit(EXIT_DIFFERENCE)


# ---- reading options -------------------------------------------------------------------------------------------------


def _check_limits(fail_under: float | None, timeout: float) -> None:
    if fail_under is not None and not 0 <= fail_under <= 1:
        raise InputError(f"{fail_under} is no rate", field="fail_under", remedy="Give 0 to 1.")
    if not 0 < timeout < math.inf:
        raise InputError(f"{timeout} is no time", field="timeout", remedy="Give seconds above 0.")


def _levels(factor: str, text: str) -> tuple[str, ...]:
    from samebits.audit.plan import LEVELS

    known = LEVELS[factor]
    if text not in (*known, "both"):
        others = " or ".join([*known, "both"])
        raise InputError(
            f"{text!r} is unknown", field="seeded" if factor == "seed" else factor, remedy=f"Give {others}."
        )
    if factor == "seed" and text == "none":
        raise InputError(
            "runs without a seed may vary, so that nothing can be concluded from them alone",
            field="seeded",
            remedy="Give fixed or both.",
        )
    return known if text == "both" else (text,)


def _integers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{text!r} is no list of integers", field=name, remedy="Give such as 1,8,32.") from None


# ---- running ---------------------------------------------------------------------------------------------------------


def _run(
    console: Console, plan: Plan, specs: Sequence[TargetSpec], path: Path, *, timeout: float, resend: bool
) -> tuple[list[Measured], list[Result]]:
    import uvloop
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from samebits.audit.carry_out import carry_out
    from samebits.audit.journal import Journal, read_journal
    from samebits.audit.result import evaluate

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Journal(path, plan.digest(specs), plan.document()) as journal:
        past = journal.past
        if past.head is not None:
            done = f"{counted(len(past.done), 'request')} {verb(len(past.done), 'has', 'have')}"
            _say(console, f"Goes on with {path}: {done} an outcome.")
        if past.torn:
            removed = f"{counted(past.torn, 'byte')} {verb(past.torn, 'was', 'were')} removed"
            _say(console, f"Its last line was cut short by a crash; {removed}.")
        shown = Progress(*columns, console=console, transient=True)
        tasks = {spec.name: shown.add_task(spec.name, total=plan.counts.measured, start=False) for spec in specs}

        def advance(name: str, count: int) -> None:
            if not shown.tasks[tasks[name]].started:
                shown.start_task(tasks[name])
            shown.advance(tasks[name], count)

        def opened(name: str, notes: Mapping[str, str]) -> None:
            # Before the runs: whoever needs what the target does not take stops here, and has paid for a question.
            for part, note in notes.items():
                _say(console, f"{name}: {part}: {note}")

        work = carry_out(plan, specs, journal, timeout=timeout, resend=resend, advance=advance, opened=opened)
        try:
            with (
                shown if console.is_terminal else nullcontext(),
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                measured = runner.run(work)
        except BaseException:
            _say_how_to_go_on(console, journal)
            raise
    results = [evaluate([o for o in read_journal(path) if o.target == spec.name], plan.prompts) for spec in specs]
    _say(console, f"All answers are in {path}.")
    if len(specs) > 1:
        names = "" if len(specs) == 2 else " --first NAME --second NAME"
        _say(console, f"Whether two of the targets answer alike: samebits compare {shlex.quote(str(path))}{names}")
    return measured, results


def _say_how_to_go_on(console: Console, journal: Journal) -> None:
    if not journal.begun:  # there is nothing to go on with
        journal.path.unlink(missing_ok=True)
        return
    name = shlex.quote(str(journal.path))
    _say(
        console,
        f"Stopped. All answers so far are in {name}. The same command with --journal {name} goes on and sends nothing "
        "again that has an outcome; what was in flight counts as lost, unless --resend is given.",
    )


def _passes(console: Console, results: Sequence[Result], fail_under: float) -> bool:
    """Whether the point estimate of each target reaches the rate; says what the runs exclude."""
    passes = True
    for result in results:
        rate, name = result.repeat_rate, result.metrics.target
        if rate is None:
            raise MeasurementError(f"{name}: no prompt has two runs, so there is no exact-repeat rate")
        interval = result.metrics.view("text").repeat.interval
        bound = "no interval" if interval is None else f"{interval.confidence:.0%} interval from {interval.low:.4f}"
        word = "not below" if rate >= fail_under else "BELOW"  # 8 digits: 1 - 4e-5 must not read "1.0000 is BELOW 1"
        _say(console, f"{name}: exact-repeat rate {rate:.8g} is {word} {fail_under:g} ({bound}).")
        passes &= rate >= fail_under
    return passes


# ---- showing ---------------------------------------------------------------------------------------------------------


def _show_plan(console: Console, plan: Plan, specs: Sequence[TargetSpec]) -> None:
    from rich.table import Table

    from samebits.audit.targets import HttpSpec

    counts, e = plan.counts, plan.experiment
    table = Table(title="Plan", show_header=False)
    factors = {name: ", ".join(levels) or "as it comes" for name, levels in e.factors().items()}
    sampling = "the target's own" if e.temperature is None else f"temperature {e.temperature:g}"
    rows = {
        "targets": ", ".join(spec.name for spec in specs),
        "prompts × runs": f"{len(plan.prompts)} × {e.runs} under each of the conditions",
        **factors,
        "times, orders": f"{e.times}, {e.orders}",
        "sampling": f"{sampling}, seed {e.seed}, at most {counted(e.max_tokens, 'token')}",
        "requests a target": f"{counts.total:,} = {counts.measured:,} measured + {counts.background:,} background + "
        f"{counts.warming:,} warming + {counts.probes:,} probing",
        "will be seen": _seen(plan.runs_of_a_prompt),
    }
    if any(isinstance(spec, HttpSpec) for spec in specs):
        rows["where refused"] = (
            f"one probing request more for each part of it that a server does not take, at most {counts.refusals}"
            + (f"; of {counted(e.top_logprobs, 'best token')} as many as it takes" if e.top_logprobs else "")
        )
    for name, value in rows.items():
        table.add_row(name, value)
    for spec in specs:
        if spec.prices is not None:
            table.add_row(f"cost of {spec.name}", f"at most about {plan.cost(spec.prices):,.2f}")
    console.print(table)
    for warning in plan.warnings():
        _say(console, warning)


def _seen(runs: int) -> str:
    from samebits.audit.intervals import CONFIDENCE, smallest_rate_seen

    rate = smallest_rate_seen(runs, CONFIDENCE)
    seen = "too few to be sure of anything" if rate is None else f"departures of {rate:.2%} of them"
    return f"of {counted(runs, 'run')} of a prompt, with {CONFIDENCE:.0%} confidence: {seen}"


def _show(console: Console, measured: Measured, result: Result) -> None:
    from rich.table import Table

    from samebits.audit.report.facts import views_table
    from samebits.audit.result import verdict

    metrics = result.metrics
    table = Table(title=f"{metrics.target}: {counted(metrics.runs, 'run')} of {counted(metrics.prompts, 'prompt')}")
    views = views_table(metrics)
    for name in views.columns:
        names = name in ("equal in", "verdict")
        table.add_column(name, justify="left" if names else "right", no_wrap=names, overflow="fold")
    for row in views.rows:
        table.add_row(*row)
    console.print(table)
    for line in verdict(result):
        _say(console, line)
    for name, note in measured.notes.items():
        _say(console, f"{metrics.target}: {name}: {note}")
    for error, count in metrics.errors:
        detail = measured.progress.details.get(error)
        _say(console, f"{counted(count, 'run')} failed: {error}" + (f" ({detail})" if detail else ""))
    if again := measured.progress.retries:
        _say(console, f"{counted(again, 'request')} {verb(again, 'was', 'were')} sent again.")


def _say(console: Console, sentence: str) -> None:
    """Prints a sentence as it is: not wrapped where its reader is a program, and with its brackets."""
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)
