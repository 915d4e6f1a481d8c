"""``samebits verify``: check a receipt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samebits.cli import EXIT_DIFFERENCE
from samebits.errors import InputError, ReceiptInvalid

if TYPE_CHECKING:
    from samebits.ledger.receipt import Receipt
    from samebits.ledger.replay import Recorded


def verify(
    receipt: Annotated[Path, typer.Argument(help="File of a receipt.", show_default=False)],
    key: Annotated[
        Path | None, typer.Option(help="Public key; the one of samebits keys init.", show_default=False)
    ] = None,
    request: Annotated[Path | None, typer.Option(help="The request that was sent.", show_default=False)] = None,
    answer: Annotated[Path | None, typer.Option(help="The answer that came.", show_default=False)] = None,
    url: Annotated[str | None, typer.Option(help="A ledger that must hold the record.", show_default=False)] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Ask again, and compare bit by bit.")] = False,
    model: Annotated[
        str | None, typer.Option(help="For --rerun: path of the model; the recorded name.", show_default=False)
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="For --rerun: the one that has the fingerprint.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="For --rerun: the models of this server's file.", show_default=False)
    ] = None,
) -> None:
    """Check the signature of a receipt, and all that is given beside it.

    Exit codes: 0 valid, 1 not valid or another answer, 2 usage, 3 the request could not be run again.
    """
    from samebits.cli.answering import Source

    source = Source(config, model, profile)
    if rerun and request is None and url is None:
        raise InputError("needs the request", field="rerun", remedy="Give --request FILE, or --url of the ledger.")
    try:
        found = read_receipt(receipt, key)
        if request is not None:
            _check_text(found, "request", request)
        given = None if answer is None else _check_text(found, "answer", answer)
        if url is not None:
            _check_ledger(found, url)
    except ReceiptInvalid as error:
        typer.echo(f"samebits: {error}", err=True)
        raise typer.Exit(EXIT_DIFFERENCE) from None
    record = found.record
    typer.echo(f"valid: {record.id}, record {record.seq} of {record.tenant}, signed by {found.key_id}")
    typer.echo(f"model {found.model['name']}, fingerprint {found.model['fingerprint']}, level {found.level}")
    if rerun:
        from samebits.cli.replay import finish, run

        finish(run(_again(found, request, given, url), source, 1, None))


def read_receipt(path: Path, key: Path | None) -> Receipt:
    """A receipt that verifies.

    Raises:
        InputError: the file or the key cannot be read.
        ReceiptInvalid: it does not verify.
    """
    from samebits.ledger.keys import PUBLIC_NAME, default_folder, read_public
    from samebits.ledger.receipt import MOST_BYTES
    from samebits.ledger.receipt import verify as verify_receipt

    public = read_public(key or default_folder() / PUBLIC_NAME)
    return verify_receipt(_read(path, "receipt", MOST_BYTES + 2), public)


def _read(path: Path, field: str, most: int = -1) -> bytes:
    """What a file holds, or its first ``most`` bytes: what has no end is not read to it."""
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", field=field, remedy="Name a file.") from error


def _check_text(found: Receipt, name: str, path: Path) -> Any:
    """What a file holds, if its digest is the receipt's."""
    from samebits.ledger.canonical import canonical, digest

    try:
        value = json.loads(_read(path, name))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {error}", field=name, remedy="Give it as it was sent.") from error
    if digest(canonical(value)) != found.digests[name]:
        raise ReceiptInvalid(f"it is of another {name} than {path}")
    return value


def _check_ledger(found: Receipt, url: str) -> None:
    from samebits.cli.ledger import open_ledger
    from samebits.ledger.chain import intact

    with open_ledger(url) as ledger:
        record = ledger.at(found.record.tenant, found.record.seq)
    if record is None or record.hash != found.record.hash:
        raise ReceiptInvalid("the ledger does not hold its record")
    if not intact(record):
        raise ReceiptInvalid("the ledger's record was changed since it was stored; see samebits ledger fsck")


def _again(found: Receipt, request: Path | None, answer: Any, url: str | None) -> Iterator[Recorded]:
    """What is to be asked again. Of an upstream's answer a receipt has no digests to compare but that of all of it, its
    ids and times too, so the ledger or the answer itself is needed.
    """
    from samebits.cli.ledger import open_ledger
    from samebits.cli.replay import read_request
    from samebits.gateway.levels import LEVELS
    from samebits.ledger.replay import Recorded
    from samebits.ledger.told_changes import as_recorded

    given: dict[str, Any] | None = None if request is None else read_request(request)
    record = found.record
    if url is not None:
        with open_ledger(url) as ledger:
            stored = ledger.at(record.tenant, record.seq)
        assert stored is not None, "it was there a moment ago"
        yield Recorded.of(stored, given)
        return
    assert given is not None
    body = {
        "route": found.route,
        "date": found.date,
        "model": {**found.model, "asked": given.get("model") or found.model["name"]},
        "level": {"asked": None, "declared": found.level},
        "digests": found.digests,
        "seed": found.seed,
        "params": {},
        "answer": answer,
        "environment": None,
        "privacy": "digest-only",
        **(as_recorded(found.changes, LEVELS) if found.tells_changes else {}),
    }
    yield Recorded(record.tenant, record.seq, record.id, record.hash, body, given)
