"""The ledger: what was asked, answered and with what, in chains that cannot be changed unseen."""

from __future__ import annotations

from samebits.ledger.entry import Digests, Entry, ModelRef, Record, Timing, public_url

__all__ = ["Digests", "Entry", "ModelRef", "Record", "Timing", "public_url"]
