"""Canonical JSON: one form, and the header that is written out is that form."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.errors import InputError
from samebits.ledger.canonical import EXACT, FORMAT, canonical, digest, header, joined, read
from samebits.numerics.digests import canonical_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(TEXT, v, max_size=4), max_leaves=20)


@given(VALUES)
def test_two_implementations_agree(value: Any) -> None:
    assert canonical(value) == canonical_json(value)


NAMES = st.text(st.characters(codec="ascii"), max_size=5)
NUMBERS = (
    st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**6), 10**6, places=7).map(float)
)


@given(st.dictionaries(NAMES, NUMBERS | st.lists(NUMBERS | TEXT), max_size=4))
def test_the_fast_way_writes_the_same_bytes(value: Any) -> None:
    assert canonical(value) == canonical_json(value)


def test_negative_control_the_fast_way_alone_would_not() -> None:
    for value in (1.0, 1e-6, -0.0, 1e16, {"\ue000": 1, "\U00010000": 2}):
        assert orjson.dumps(value, option=orjson.OPT_SORT_KEYS) != canonical_json(value)
        assert canonical(value) == canonical_json(value)


@given(VALUES)
def test_it_is_a_fixed_point(value: Any) -> None:
    once = canonical(value)
    assert canonical(read(once)) == once


def test_negative_control_another_reader_takes_a_large_float_for_an_integer() -> None:
    once = canonical(1e17)
    assert canonical(json.loads(once)) == b'"100000000000000000"' != once == canonical(read(once))


def test_large_integers_are_strings() -> None:
    assert canonical({"seed": 2**63 - 1, "n": [EXACT, -EXACT, EXACT + 1]}) == (
        b'{"n":[9007199254740991,-9007199254740991,"9007199254740992"],"seed":"9223372036854775807"}'
    )


@given(st.dictionaries(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1), VALUES, max_size=5))
def test_members_that_are_joined_are_canonical(members: dict[str, Any]) -> None:
    assert joined({name: canonical(value) for name, value in members.items()}) == canonical(members)


@given(TEXT, st.integers(1, EXACT), st.integers(0, 2**63 - 1))
def test_the_header_is_canonical(tenant: str, seq: int, time_ns: int) -> None:
    zero = digest(b"")
    found = header(tenant=tenant, seq=seq, id="a.b:c-1", kind="answer", time_ns=time_ns, prev=zero, body_digest=zero)
    assert found == canonical(
        {
            "ledger": FORMAT,
            "tenant": tenant,
            "seq": seq,
            "id": "a.b:c-1",
            "kind": "answer",
            "time": str(time_ns),
            "prev": zero,
            "body": zero,
        }
    )


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1: 2}, "\ud800", {"\ud800": 1}, b"x", {1, 2}, object(), nested(100_000)]
)
def test_what_has_no_form_is_refused_without_being_shown(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        canonical({"secret": "sentinel-7431", "value": value})
    assert "sentinel" not in str(caught.value)
