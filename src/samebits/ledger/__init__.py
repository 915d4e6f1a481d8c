"""The ledger: what was asked, answered and with what, in chains that cannot be changed unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samebits.ledger.entry import Digests, Entry, ModelRef, Record, Timing, public_url
from samebits.ledger.environment import environment_id
from samebits.ledger.privacy import Privacy

if TYPE_CHECKING:
    from samebits.ledger.store import Ledger
    from samebits.ledger.writer import AsyncLedger

__all__ = [
    "AsyncLedger",
    "Digests",
    "Entry",
    "Ledger",
    "ModelRef",
    "Privacy",
    "Record",
    "Timing",
    "environment_id",
    "public_url",
]


def __getattr__(name: str) -> Any:
    """Imports what needs a database only when it is asked for: SQLAlchemy takes a third of a second, and a server
    without a ledger is to start without it.
    """
    if name == "Ledger":
        from samebits.ledger.store import Ledger

        return Ledger
    if name == "AsyncLedger":
        from samebits.ledger.writer import AsyncLedger

        return AsyncLedger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
