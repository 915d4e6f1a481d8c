"""``samebits replay``: ask recorded requests again, and compare bit by bit."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from samebits.cli import EXIT_DIFFERENCE, EXIT_NOT_MEASURED
from samebits.counted import counted, verb
from samebits.errors import InputError, MeasurementError

if TYPE_CHECKING:
    from samebits.cli.answering import Source
    from samebits.ledger import Ledger, Record
    from samebits.ledger.replay import Outcome, Recorded, Summary

KEYS: Final = ("tenant", "model", "fingerprint", "policy", "since")


def replay(
    what: Annotated[
        str | None,
        typer.Argument(help="An id, the file of a receipt, or a query such as model=m,since=1h.", show_default=False),
    ] = None,
    url: Annotated[str | None, typer.Option(help="The ledger.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Replay all answers.")] = False,
    sample: Annotated[str | None, typer.Option(help="Replay a share of them, such as 1%.", show_default=False)] = None,
    sample_seed: Annotated[int, typer.Option(help="Another seed draws another sample.")] = 0,
    request: Annotated[
        Path | None, typer.Option(help="The request, where the ledger does not hold it.", show_default=False)
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Public key of a receipt; the one of samebits keys init.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Path of the model; the recorded name.", show_default=False)] = None,
    profile: Annotated[
        str | None, typer.Option(help="The one that has the recorded fingerprint.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Replay with the models of this server's file.", show_default=False)
    ] = None,
    together: Annotated[int, typer.Option(help="Requests in flight; moves no bit.")] = 8,
    report: Annotated[Path | None, typer.Option(help="Write an outcome a line.", show_default=False)] = None,
) -> None:
    """Replay answers of a ledger, and name the first difference with its likely cause.

    Exit codes: 0 all the same, 1 a difference, 3 something could not be compared.
    """
    from samebits.cli.answering import Source

    if (what is not None) + every + (sample is not None) != 1:
        raise InputError("or --all or --sample is needed, and one of them", field="what", remedy="Give an id.")
    if not 1 <= together <= 512:
        raise InputError(f"{together} is out of range", field="together", remedy="Give 1 to 512.")
    share = 1.0 if sample is None else _share(sample)
    source = Source(config, model, profile)
    if url is None:
        raise InputError("is needed", field="url", remedy="Name the ledger, such as sqlite:///FILE.")
    from samebits.cli.ledger import check_apart, open_ledger

    with open_ledger(url) as ledger:
        if report is not None:
            check_apart(ledger, report, "report")
        records = _chosen(ledger, what, key, request, share, sample_seed)
        if report is None:
            summary = run(records, source, together, None)
        else:
            with report.open("w", encoding="utf-8") as out:
                summary = run(records, source, together, out)
    finish(summary)


def run(records: Iterator[Record | Recorded], source: Source, together: int, out: TextIO | None) -> Summary:
    """Replays records; differences are printed, and every outcome goes to the report."""
    from samebits.cli.answering import Answering
    from samebits.ledger.replay import replay as replay_records

    def tell(outcome: Outcome) -> None:
        if out is not None:
            out.write(json.dumps(asdict(outcome)) + "\n")
        if outcome.verdict == "differs":
            typer.echo(f"{outcome.tenant} {outcome.seq} {outcome.id}: differs in {outcome.difference}")
            typer.echo(f"  likely cause: {outcome.cause}")
        elif outcome.verdict == "not measured":
            typer.echo(f"{outcome.tenant} {outcome.seq} {outcome.id}: not measured: {outcome.reason}", err=True)

    async def work() -> Summary:
        async with Answering(source) as answering:
            return await replay_records(records, answering.answer, tell, together)

    return asyncio.run(work())


def finish(summary: Summary) -> None:
    """Says the result, and ends with its exit code."""
    if not summary.same + summary.differs + summary.not_measured:
        raise MeasurementError("nothing was chosen: the ledger holds no such answer, or none of the sample")
    differ = verb(summary.differs, "differs", "differ")
    typer.echo(f"{summary.same} same, {summary.differs} {differ}, {summary.not_measured} not measured")
    if summary.differs:
        raise typer.Exit(EXIT_DIFFERENCE)
    if summary.not_measured:
        raise typer.Exit(EXIT_NOT_MEASURED)


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise InputError(f"{text!r} is no share", field="sample", remedy="Give such as 1% or 0.01.")
    return share


def _chosen(
    ledger: Ledger, what: str | None, key: Path | None, request: Path | None, share: float, seed: int
) -> Iterator[Record | Recorded]:
    from samebits.ledger.replay import Recorded, is_sampled

    if request is not None:
        found = _of_one(ledger, what, key)
        yield Recorded.of(found, read_request(request))
    elif what is not None and "=" not in what:
        yield _of_one(ledger, what, key)
    else:
        wanted = _query(what or "")
        for record in ledger.records(wanted.get("tenant")):
            if record.kind == "answer" and _matches(record, wanted) and is_sampled(record, share, seed):
                yield record


def _of_one(ledger: Ledger, what: str | None, key: Path | None) -> Record:
    from samebits.cli.verify import read_receipt

    if what is None or "=" in what:
        raise InputError("is of one record", field="request", remedy="Name it by its id or receipt.")
    if os.path.isfile(what):
        receipt = read_receipt(Path(what), key)
        record = ledger.at(receipt.record.tenant, receipt.record.seq)
        if record is None or record.hash != receipt.record.hash:
            raise MeasurementError("the ledger does not hold the record of the receipt")
        return record
    answers = [record for record in ledger.find(what) if record.kind == "answer"]
    if len(answers) != 1:
        raise MeasurementError(f"the ledger holds {counted(len(answers), 'answer')} of the id {what}")
    return answers[0]


def read_request(path: Path) -> dict[str, Any]:
    """The body of a request from a file.

    Raises:
        InputError: it is no JSON object.
    """
    from samebits.gateway.json_body import read_answer

    try:
        value = read_answer(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", field="request", remedy="Name a JSON file.") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} holds no object", field="request", remedy="Give the body of the request.")
    return value


def _query(text: str) -> dict[str, Any]:
    from samebits.cli.ledger import time_of

    wanted: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in KEYS or not value:
            raise InputError(
                f"{part!r} is no condition", field="what", remedy=f"Use: {', '.join(KEYS)}, as in tenant=t."
            )
        wanted[name] = time_of(value, "what") if name == "since" else value
    return wanted


def _matches(record: Record, wanted: dict[str, Any]) -> bool:
    from samebits.ledger.chain import intact

    if record.time_ns < wanted.get("since", record.time_ns):
        return False
    names = wanted.keys() & {"model", "fingerprint", "policy"}
    if not names or record.body is None:
        return not names
    if not intact(record):  # nobody knows what it was of; it is chosen, and found not to be measurable
        return True
    body = json.loads(record.body)
    said = {
        "model": (body["model"]["asked"], body["model"]["name"]),
        "fingerprint": (body["model"]["fingerprint"],),
        "policy": (body["policy"],),
    }
    return all(wanted[name] in said[name] for name in names)
