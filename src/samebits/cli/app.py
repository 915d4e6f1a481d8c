"""The verbs, put together."""

from __future__ import annotations

import typer

from samebits.cli.advise import advise
from samebits.cli.audit import audit
from samebits.cli.cache import cache
from samebits.cli.compare import compare
from samebits.cli.demo import demo
from samebits.cli.doctor import doctor
from samebits.cli.generate import generate
from samebits.cli.info import info
from samebits.cli.keys import app as keys
from samebits.cli.ledger import app as ledger
from samebits.cli.lock import lock
from samebits.cli.replay import replay
from samebits.cli.report import report
from samebits.cli.serve import serve
from samebits.cli.tradeoff import tradeoff
from samebits.cli.verify import verify

app = typer.Typer(
    name="samebits",
    help="Reproducible LLM inference: the same bits whatever else the machine does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich ends the process with code 1 when nobody reads its help
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(generate)
app.command()(demo)
app.command()(info)
app.command()(serve)
app.command()(cache)
app.command()(audit)
app.command()(report)
app.command()(compare)
app.command()(doctor)
app.command()(advise)
app.command()(lock)
app.command()(verify)
app.command()(replay)
app.add_typer(ledger, name="ledger")
app.add_typer(keys, name="keys")
app.command()(tradeoff)
