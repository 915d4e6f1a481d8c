"""What upstreams said they are, kept beside the records, so that a change is seen across a restart.

A baseline is a state, and not evidence: that something moved is a record of the chain (``alias``).
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from samebits.ledger.database import insert_into, reading, writing
from samebits.ledger.store import Ledger
from samebits.ledger.tables import baselines


@dataclass(frozen=True)
class Baseline:
    """What an upstream stated in its last answer that was accepted.

    Attributes:
        route: name of the model here.
        address: of the server, without credentials and query.
        asked: name of the model there; for another address or name there is no baseline yet.
        model: the name in the answer; None where it states none.
        fingerprint: the one in the answer; None where it states none.
    """

    route: str
    address: str
    asked: str
    model: str | None
    fingerprint: str | None


def read_baseline(ledger: Ledger, route: str, address: str, asked: str) -> Baseline | None:
    """The baseline of a route; None before its first answer.

    Raises:
        LedgerError: the database cannot be read.
    """
    columns = baselines.c
    wanted = (columns.route == route, columns.address == address, columns.asked == asked)
    with reading(ledger.engine) as connection:
        found = connection.execute(sa.select(columns.model, columns.fingerprint).where(*wanted)).one_or_none()
    return None if found is None else Baseline(route, address, asked, found.model, found.fingerprint)


def keep_baseline(ledger: Ledger, baseline: Baseline) -> None:
    """Opens a new baseline in place of the one before.

    Raises:
        LedgerError: the database cannot be written.
    """
    key = {"route": baseline.route, "address": baseline.address, "asked": baseline.asked}
    state = {"model": baseline.model, "fingerprint": baseline.fingerprint, "time_ns": ledger.clock()}
    with writing(ledger.engine) as connection:
        new = insert_into(connection, baselines).values(**key, **state)
        connection.execute(new.on_conflict_do_update(index_elements=list(key), set_=state))
