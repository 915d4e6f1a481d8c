"""The chain of a tenant: each record's hash covers its header, and its header the hash before and the body's digest."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.ledger.canonical import GENESIS, digest, header
from samebits.ledger.entry import Record


@dataclass(frozen=True)
class Head:
    """The last record of a chain: its position and hash; position 0 for a chain without records."""

    seq: int = 0
    hash: str = GENESIS


def link(head: Head, *, tenant: str, id: str, kind: str, time_ns: int, body: bytes) -> Record:
    """The record that follows a head."""
    seq, body_digest = head.seq + 1, digest(body)
    head_bytes = header(
        tenant=tenant, seq=seq, id=id, kind=kind, time_ns=time_ns, prev=head.hash, body_digest=body_digest
    )
    return Record(
        tenant=tenant,
        seq=seq,
        id=id,
        kind=kind,
        time_ns=time_ns,
        prev=head.hash,
        hash=digest(head_bytes),
        body=body,
        body_digest=body_digest,
    )


def hash_of(record: Record) -> str:
    """The hash that a record must have, from its other fields."""
    return digest(
        header(
            tenant=record.tenant,
            seq=record.seq,
            id=record.id,
            kind=record.kind,
            time_ns=record.time_ns,
            prev=record.prev,
            body_digest=record.body_digest,
        )
    )


def typed(record: Record) -> bool:
    """Whether every field is of its type: a column of SQLite may hold anything, after damage or by somebody's hand."""
    tenant, seq, id, kind, time_ns, _, hash, body, body_digest = record
    return (
        type(seq) is type(time_ns) is int
        and type(tenant) is type(id) is type(kind) is type(hash) is type(body_digest) is str
        and (body is None or type(body) is bytes)
    )


def intact(record: Record) -> bool:
    """Whether hash and body are those that belong to the record; a pruned body cannot differ."""
    return hash_of(record) == record.hash and (record.body is None or digest(record.body) == record.body_digest)
