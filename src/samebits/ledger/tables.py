"""The tables, the same on SQLite and PostgreSQL. Migrations make them (ledger/migrations)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text

REVISION: Final = "0003"  # of the migrations; a test compares
# Forms with today's records and heads, so that nothing is missing.
READABLE: Final = frozenset({"0001", "0002", REVISION})

metadata = MetaData()

# Every column of a record is covered by its hash. A record is never changed, but that pruning empties its body.
records = Table(
    "records",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("id", String(200), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("time_ns", BigInteger, nullable=False),
    Column("hash", String(140), nullable=False),
    Column("body_digest", String(140), nullable=False),
    Column("body", LargeBinary),
    Index("records_id", "id"),
)

# The last record of each chain; locked while the chain grows.
heads = Table(
    "heads",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("hash", String(140), nullable=False),
)

# What each upstream was when it answered last; a state beside the chains, of which records alone are evidence.
baselines = Table(
    "baselines",
    metadata,
    Column("route", Text, primary_key=True),
    Column("address", Text, primary_key=True),
    Column("asked", Text, primary_key=True),
    Column("model", Text),
    Column("fingerprint", Text),
    Column("time_ns", BigInteger, nullable=False),
)

# One row, written anew to find out whether anything can be written.
probe = Table(
    "probe",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("filler", LargeBinary, nullable=False),
)
