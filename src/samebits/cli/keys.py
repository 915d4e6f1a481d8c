"""``samebits keys``: the keys that sign receipts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Keys that sign receipts.", no_args_is_help=True)


@app.callback()
def keys() -> None:
    """Keys that sign receipts."""


@app.command()
def init(
    out: Annotated[
        Path | None, typer.Option(help="Folder; ~/.config/samebits when not given.", show_default=False)
    ] = None,
) -> None:
    """Make an Ed25519 key: a private file that signs, and a public one that verifies."""
    from samebits.ledger.keys import PRIVATE_NAME, PUBLIC_NAME, default_folder, write_new

    folder = out or default_folder()
    signer = write_new(folder)
    typer.echo(f"private key: {folder / PRIVATE_NAME} (keep it secret)")
    typer.echo(f"public key:  {folder / PUBLIC_NAME} (give it to those who verify)")
    typer.echo(f"key id:      {signer.public.id}")
