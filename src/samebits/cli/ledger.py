"""``samebits ledger``: look at a ledger, check it, carry it elsewhere, prune it."""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from samebits.cli import EXIT_DIFFERENCE
from samebits.counted import counted, verb
from samebits.errors import InputError, LedgerError, MeasurementError

if TYPE_CHECKING:
    from samebits.ledger import Ledger, Record
    from samebits.ledger.fsck import Report

app = typer.Typer(help="Look at a ledger, check it, carry it elsewhere, prune it.", no_args_is_help=True)

Url = Annotated[str, typer.Option(help="sqlite:///FILE or postgresql://USER@HOST/DATABASE.", show_default=False)]
Tenant = Annotated[str | None, typer.Option(help="One tenant's chain; all when not given.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_AGE: Final = re.compile(r"([0-9]{1,12})([smhdw])")
_YEARS: Final = 1961 * 31556952  # seconds: what datetime can show on both sides of 1970
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def check_apart(ledger: Ledger, path: Path, field: str) -> None:
    """Refuses to write into the ledger what is to be written beside it.

    Raises:
        InputError: the file is the ledger's.
    """
    if ledger.is_in(path):
        raise InputError(f"{path} is the ledger itself", field=field, remedy="Name another file.")


def open_ledger(url: str, *, readonly: bool = True) -> Ledger:
    """A ledger that exists."""
    from samebits.ledger import Ledger

    return Ledger.open(url, readonly=readonly)


def time_of(text: str, field: str) -> int:
    """A time in nanoseconds since 1970: ISO 8601, or an age such as 30d.

    Raises:
        InputError: it is neither.
    """
    if found := _AGE.fullmatch(text):
        return max(0, time.time_ns() - int(found[1]) * _SECONDS[found[2]] * 10**9)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{text!r} is no time", field=field, remedy="Give ISO 8601, such as 2026-11-30, or an age, such as 30d."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    time_ns = (moment - _EPOCH) // datetime.timedelta(microseconds=1) * 1000
    if abs(time_ns) >= 2**63:
        raise InputError(f"{text!r} is out of range", field=field, remedy="Give a year from 1678 to 2261.")
    return time_ns


def moment(time_ns: int) -> str:
    """A time as ISO 8601, UTC, to the millisecond."""
    seconds, rest = divmod(time_ns, 10**9)
    if not -_YEARS < seconds < _YEARS:  # no clock said so: the record is damaged, and can be listed all the same
        return f"{time_ns} ns"
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%dT%H:%M:%S}.{rest // 10**6:03d}Z"


def body_of(record: Record) -> dict[str, Any]:
    """The body as a mapping; empty once it was pruned."""
    from samebits.ledger.chain import intact

    if not intact(record):
        raise LedgerError(
            f"record {record.seq} of {record.tenant!r} was changed since it was stored; see samebits ledger fsck"
        )
    body: dict[str, Any] = {} if record.body is None else json.loads(record.body)
    return body


def check_chain_exists(ledger: Ledger, tenant: str | None) -> None:
    """Refuses a tenant without a chain: a name that is spelled wrong must not pass for an empty one."""
    if tenant is not None and next(ledger.records(tenant), None) is None:
        raise InputError(
            f"{tenant!r:.80} has no chain here", field="tenant", remedy=f"Use one of: {', '.join(ledger.heads())}."
        )


@app.command("list")
def list_records(
    url: Url,
    tenant: Tenant = None,
    kind: Annotated[
        str | None, typer.Option(help="answer, attempt, error, cancelled, alias or tombstone.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Asked for or resolved.", show_default=False)] = None,
    since: Annotated[str | None, typer.Option(help="A time, or an age such as 1h.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="Most records to show; 0 shows all.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List records, oldest first."""
    from samebits.ledger.chain import intact
    from samebits.ledger.entry import KINDS
    from samebits.ledger.tombstone import TOMBSTONE

    start = None if since is None else time_of(since, "since")
    if kind not in (None, *KINDS, TOMBSTONE):
        raise InputError(
            f"{kind!r:.80} is unknown", field="kind", remedy=f"Use one of: {', '.join((*KINDS, TOMBSTONE))}."
        )
    if limit < 0:
        raise InputError(f"{limit} is negative", field="limit", remedy="Give a number, or 0 for all.")
    shown = 0
    with open_ledger(url) as ledger:
        check_chain_exists(ledger, tenant)
        for record in ledger.records(tenant):
            if (kind is not None and record.kind != kind) or (start is not None and record.time_ns < start):
                continue
            good = intact(record)
            body = body_of(record) if good else {}
            names = body.get("model", {})
            if good and model is not None and model not in (names.get("asked"), names.get("name")):
                continue
            if limit and shown == limit:
                typer.echo(f"samebits: there are more than {limit}; give --limit 0", err=True)
                break
            shown += 1
            row = {
                "tenant": record.tenant,
                "seq": record.seq,
                "time": moment(record.time_ns),
                "kind": record.kind,
                "id": record.id,
                "model": names.get("name") or names.get("asked"),
                "level": body.get("level", {}).get("declared"),
                "pruned": record.body is None,
                "intact": good,
            }
            typer.echo(json.dumps(row) if as_json else _row(row))


def _row(row: dict[str, Any]) -> str:
    rest = "pruned" if row["pruned"] else f"{row['model'] or '-'}  {row['level'] or '-'}"
    if not row["intact"]:
        rest = "changed since it was stored: see samebits ledger fsck"
    return f"{row['tenant']} {row['seq']:>6}  {row['time']}  {row['kind']:<9} {row['id']}  {rest}"


@app.command()
def show(
    id: Annotated[str, typer.Argument(help="Public id of an answer.", show_default=False)],
    url: Url,
    receipt: Annotated[bool, typer.Option("--receipt", help="Print the signed receipt of the answer instead.")] = False,
    key: Annotated[
        Path | None, typer.Option(help="Private key that signs; the one of samebits keys init.", show_default=False)
    ] = None,
) -> None:
    """Show the records of an id as JSON, or make the receipt."""
    from samebits.ledger.lines import to_line

    with open_ledger(url) as ledger:
        records = ledger.find(id)
    if not records:
        raise InputError("is not in this ledger", field="id", remedy="See samebits ledger list.")
    if not receipt:
        for record in records:
            body_of(record)  # what was changed is not shown as what was recorded
            typer.echo(json.dumps(json.loads(to_line(record)), indent=2, ensure_ascii=False))
        return
    from samebits.ledger.keys import PRIVATE_NAME, default_folder, read_signer
    from samebits.ledger.receipt import receipt_of

    answers = [record for record in records if record.kind == "answer"]
    if len(answers) != 1:
        raise InputError(
            f"has {counted(len(answers), 'answer')}", field="id", remedy="A receipt is made of one answer."
        )
    typer.echo(receipt_of(answers[0], read_signer(key or default_folder() / PRIVATE_NAME)).decode())


@app.command()
def fsck(
    url: Annotated[str | None, typer.Option(help="sqlite:///FILE or postgresql://…", show_default=False)] = None,
    file: Annotated[Path | None, typer.Option(help="Check an export instead of a ledger.", show_default=False)] = None,
    anchors: Annotated[
        Path | None, typer.Option(help="File of anchored heads to compare with.", show_default=False)
    ] = None,
    tsa_root: Annotated[
        Path | None, typer.Option(help="Root certificate of the timestamps in it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every record, link and head.

    Exit codes: 0 intact, 1 something was changed, removed or damaged, 3 no head in --anchors to compare with.
    """
    from samebits.ledger.fsck import check, check_lines, summary

    if (url is None) == (file is None):
        raise InputError("or --file is needed, and not both", field="url", remedy="Give one of the two.")
    if tsa_root is not None and anchors is None:
        raise InputError("is for --anchors", field="tsa_root", remedy="Name the file of anchors.")
    start = time.perf_counter()
    if file is not None:
        report = check_lines(file, anchors, tsa_root)
    else:
        with open_ledger(str(url)) as ledger:
            report = check(ledger, anchors, tsa_root)
    if as_json:
        typer.echo(json.dumps(summary(report), indent=2))
    else:
        _tell(report, time.perf_counter() - start)
    if report.count:
        raise typer.Exit(EXIT_DIFFERENCE)
    if anchors is not None and report.records and not report.anchors:
        raise MeasurementError(f"{anchors} holds no head: there was nothing to compare the ledger with")


def _tell(report: Report, seconds: float) -> None:
    for problem in report.problems:
        where = f"{problem.tenant} {problem.seq}: " if problem.tenant else ""
        typer.echo(f"{problem.fault}: {where}{problem.said}")
    if report.count > len(report.problems):
        typer.echo(f"… and {report.count - len(report.problems)} more")
    for note in report.notes:
        typer.echo(f"note: {note}")
    verdict = f"{counted(report.count, 'problem')}" if report.count else "intact"
    chains = len(report.heads)
    typer.echo(
        f"{verdict}: {counted(report.records, 'record')} ({report.pruned} pruned) in {counted(chains, 'chain')}, "
        f"{counted(report.anchors, 'anchor')} compared, {seconds:.1f} s"
    )


@app.command()
def export(
    url: Url,
    tenant: Tenant = None,
    out: Annotated[Path | None, typer.Option(help="File; standard output when not given.", show_default=False)] = None,
) -> None:
    """Write records as lines of JSON, which can be imported and checked elsewhere."""
    with open_ledger(url) as ledger:
        check_chain_exists(ledger, tenant)
        if out is not None:
            check_apart(ledger, out, "out")
        lines = map(_line, ledger.records(tenant))
        if out is None:
            for line in lines:
                sys.stdout.write(line.decode())
            return
        _write(out, lines)


def _line(record: Record) -> bytes:
    """A record as a line. One that was changed and is JSON still is carried along, for fsck to find it there too."""
    from samebits.ledger.canonical import canonical, read
    from samebits.ledger.chain import intact
    from samebits.ledger.lines import to_line

    if record.body is not None and not intact(record):
        try:
            good = canonical(read(record.body)) == record.body
        except (ValueError, RecursionError):
            good = False
        if not good:  # it would make the lines behind it unreadable
            raise LedgerError(
                f"record {record.seq} of {record.tenant!r} is damaged, and cannot be written; see samebits ledger fsck"
            )
    return to_line(record)


def _write(out: Path, lines: Iterator[bytes]) -> None:
    """Into a new file that gets its name when it is whole; into what is no file, such as a pipe, as it comes."""
    if out.exists() and not out.is_file():
        with out.open("wb") as file:
            file.writelines(lines)
        return
    part = out.with_name(out.name + ".part")
    with part.open("wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    part.replace(out)


@app.command("import")
def import_records(
    file: Annotated[Path, typer.Argument(help="An export.", show_default=False)],
    url: Url,
) -> None:
    """Add exported records to their chains, at their positions. Exit code 1: the file's last line was cut short."""
    from samebits.ledger.lines import import_lines

    with open_ledger(url, readonly=False) as ledger:
        result = import_lines(ledger, file)
    typer.echo(
        f"{counted(result.added, 'record')} added, {result.present} {verb(result.present, 'was', 'were')} there already"
    )
    if (torn := result.torn) is not None:
        typer.echo(
            f"line {torn.line}, at byte {torn.position}, is cut short ({counted(torn.size, 'byte')}), and was not added"
        )
        raise typer.Exit(EXIT_DIFFERENCE)


@app.command()
def prune(
    url: Url,
    before: Annotated[str, typer.Option(help="A time, or an age such as 30d.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Recorded in the chain.", show_default=False)],
    tenant: Tenant = None,
) -> None:
    """Remove the bodies of old records. Their headers stay, and a tombstone in the chain says why."""
    from samebits.ledger.tombstone import prune as prune_records

    open_ledger(url).close()  # what is not there is not made, only to hold nothing that can be pruned
    with open_ledger(url, readonly=False) as ledger:
        check_chain_exists(ledger, tenant)
        for result in prune_records(ledger, time_of(before, "before"), reason, tenant):
            removed, added = counted(result.bodies, "body", "bodies"), counted(result.tombstones, "tombstone")
            typer.echo(f"{result.tenant}: {removed} removed, {added} added")


@app.command()
def anchor(
    url: Url,
    to: Annotated[
        Path, typer.Option(help="File that the heads are added to; best on another disk.", show_default=False)
    ],
    tsa: Annotated[
        str | None, typer.Option(help="Authority (RFC 3161) that gives a timestamp of them.", show_default=False)
    ] = None,
) -> None:
    """Note the present heads of all chains in a file, for samebits ledger fsck --anchors."""
    from samebits.ledger.anchors import Anchors
    from samebits.ledger.timestamp import stamp

    with open_ledger(url) as ledger:
        check_apart(ledger, to, "to")
        heads = ledger.heads()
    anchors = Anchors(to)
    anchors.note_heads(heads)
    anchors.write(None if tsa is None else lambda data: stamp(tsa, data))
    anchors.close()
    typer.echo(f"{counted(len(heads), 'head')} noted in {to}")
