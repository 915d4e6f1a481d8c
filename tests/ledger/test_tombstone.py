"""Pruning: bodies are gone from the disk, and the chain still proves what was there."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ledger.conftest import make_entry

from samebits.errors import InputError
from samebits.ledger import Ledger
from samebits.ledger.canonical import digest
from samebits.ledger.database import writing
from samebits.ledger.fsck import check
from samebits.ledger.spans import Spans
from samebits.ledger.tables import records
from samebits.ledger.tombstone import prune

SENTINEL = "sentinel-9a8b7c"


def filled(url: str) -> Ledger:
    """Five records a second apart, of two tenants in turns."""
    times = iter(range(10**9, 10**12, 10**9))
    ledger = Ledger.open(url, clock=lambda: next(times))
    for i in range(5):
        ledger.append([make_entry(i, tenant=f"t{i % 2}", request={"prompt": f"{SENTINEL} {i}"})])
    return ledger


def test_old_bodies_go_and_the_chain_stays(url: str) -> None:
    with filled(url) as ledger:
        before = {record.id: record for record in ledger.records()}
        result = prune(ledger, before_ns=4 * 10**9, reason="retention of 3 s")
        assert [(p.tenant, p.bodies, p.tombstones) for p in result] == [("t0", 2, 1), ("t1", 1, 1)]
        after = list(ledger.records())
        report = check(ledger)
        assert (report.count, report.pruned, report.records) == (0, 3, 7)
        assert prune(ledger, before_ns=4 * 10**9, reason="again")[0].bodies == 0
    for record in after:
        if record.kind != "tombstone":
            assert record[:7] == before[record.id][:7]
            assert (record.body is None) == (record.time_ns < 4 * 10**9)
            # Who has kept the body can prove that it is the one that was recorded.
            assert digest(before[record.id].body or b"") == record.body_digest
    stone = json.loads(next(r for r in after if r.kind == "tombstone").body or b"")
    assert (stone["pruned"], stone["reason"]) == ([[1, 2]], "retention of 3 s")


def test_one_tenant_can_be_pruned(url: str) -> None:
    with filled(url) as ledger:
        assert [p.tenant for p in prune(ledger, 2**62, "asked for", tenant="t1")] == ["t1"]
        assert {record.tenant for record in ledger.records() if record.body is None} == {"t1"}


def test_pruned_texts_are_not_on_the_disk(sqlite_url: str) -> None:
    with filled(sqlite_url) as ledger:
        folder = Path(sqlite_url.removeprefix("sqlite:///")).parent
        assert any(SENTINEL.encode() in path.read_bytes() for path in folder.iterdir())  # negative control
        prune(ledger, before_ns=2**62, reason="all")
        assert not any(SENTINEL.encode() in path.read_bytes() for path in folder.iterdir())


def test_a_body_that_is_missing_without_a_tombstone_is_found(url: str) -> None:
    with filled(url) as ledger:
        prune(ledger, before_ns=2 * 10**9, reason="test")
        with writing(ledger.engine) as connection:
            connection.execute(records.update().where(records.c.tenant == "t0", records.c.seq == 2).values(body=None))
        [problem] = check(ledger).problems
    assert (problem.fault, problem.tenant, problem.seq) == ("pruned", "t0", 2)


def test_a_reason_is_needed(sqlite_url: str) -> None:
    with filled(sqlite_url) as ledger, pytest.raises(InputError, match="reason"):
        prune(ledger, before_ns=2**62, reason=" ")


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6))),
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6))),
)
def test_spans_are_sets(ours: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> None:
    sets: list[set[int]] = []
    spans: list[Spans] = []
    for pairs in (ours, theirs):
        spans.append(Spans())
        sets.append(set())
        for first, size in pairs:
            spans[-1].add_span(first, first + size - 1)
            sets[-1] |= set(range(first, first + size))
    for span, kept in zip(spans, sets, strict=True):
        assert {i for first, last in span for i in range(first, last + 1)} == kept
        assert len(span) == len(kept)
        ordered = list(span)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(ordered))  # as few as can be
    rest = {i for first, last in spans[0].minus(spans[1]) for i in range(first, last + 1)}
    assert rest == sets[0] - sets[1]
