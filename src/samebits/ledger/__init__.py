"""The ledger: what was asked, answered and with what, in chains that cannot be changed unseen."""

from __future__ import annotations

from samebits.ledger.entry import Digests, Entry, ModelRef, Record, Timing, public_url
from samebits.ledger.environment import environment_id
from samebits.ledger.privacy import Privacy
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
