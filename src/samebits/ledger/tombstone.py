"""Pruning: bodies go, headers stay, and a tombstone in the chain says which, when and why.

The chain can still be checked from end to end, since a hash covers the body's digest and not the body. Who has kept a
body elsewhere can still prove that it is the one that was recorded.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from samebits.errors import InputError, LedgerError
from samebits.ledger.body import SALT_BYTES, Sealed
from samebits.ledger.canonical import canonical
from samebits.ledger.database import writing
from samebits.ledger.entry import Record
from samebits.ledger.spans import Spans
from samebits.ledger.store import Ledger, extend
from samebits.ledger.tables import records

TOMBSTONE: Final = "tombstone"
AT_ONCE: Final = 5000  # bodies of one transaction: writers of the same database wait no longer than that takes


@dataclass(frozen=True)
class Pruned:
    """What was pruned of one chain."""

    tenant: str
    bodies: int
    tombstones: int


def prune(ledger: Ledger, before_ns: int, reason: str, tenant: str | None = None) -> list[Pruned]:
    """Removes the bodies of records that are older than a time. Tombstones stay.

    Args:
        before_ns: wall clock, nanoseconds since 1970.
        reason: recorded in the tombstones.
        tenant: None for all.

    Raises:
        InputError: there is no reason.
        LedgerError: the database cannot be written; what was pruned so far has its tombstone.
    """
    if not reason.strip():
        raise InputError("is empty", field="reason", remedy="Say why, such as: retention of 30 days.")
    try:
        canonical(reason)
    except InputError as error:
        raise InputError(error.message, field="reason", remedy=error.remedy) from None
    result = []
    for name in [tenant] if tenant is not None else sorted(ledger.heads()):
        bodies = tombstones = 0
        while removed := _prune_some(ledger, name, before_ns, reason):
            bodies, tombstones = bodies + removed, tombstones + 1
        result.append(Pruned(name, bodies, tombstones))
    _forget(ledger)
    return result


def _prune_some(ledger: Ledger, tenant: str, before_ns: int, reason: str) -> int:
    old = sa.and_(
        records.c.tenant == tenant,
        records.c.time_ns < before_ns,
        records.c.body.is_not(None),
        records.c.kind != TOMBSTONE,
    )
    with writing(ledger.engine) as connection:
        found = connection.execute(sa.select(records.c.seq).where(old).order_by(records.c.seq).limit(AT_ONCE)).scalars()
        spans = Spans()
        for seq in found:
            if type(seq) is not int:
                raise LedgerError(f"a position in the chain of {tenant!r} is damaged; see samebits ledger fsck")
            spans.add(seq)
        if not len(spans):
            return 0
        said = {"pruned": [list(span) for span in spans], "reason": reason, "salt": secrets.token_hex(SALT_BYTES)}
        extend(connection, [Sealed(tenant, TOMBSTONE, TOMBSTONE, canonical(said))], ledger.clock, [])
        for first, last in spans:
            within = records.c.seq.between(first, last)
            connection.execute(records.update().where(records.c.tenant == tenant, within).values(body=None))
        return len(spans)


def _forget(ledger: Ledger) -> None:
    """Overwrites what SQLite still holds of the removed bodies in its log; PostgreSQL does so when it vacuums."""
    if ledger.engine.dialect.name == "sqlite":
        with ledger.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def spans_of(record: Record) -> Spans:
    """The positions that a tombstone speaks of.

    Raises:
        ValueError: it does not say so in its form.
    """
    spans = Spans()
    try:
        for first, last in json.loads(record.body or b"")["pruned"]:
            spans.add_span(int(first), int(last))
    except (TypeError, KeyError) as error:
        raise ValueError("no tombstone") from error
    return spans
