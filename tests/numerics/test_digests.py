"""Digests and canonical JSON: fixed answers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from samebits.errors import InputError
from samebits.numerics import canonical_json, digest_array, digest_bytes, digest_json


def test_bytes_golden() -> None:
    # FIPS 180-2, appendix B.1.
    assert digest_bytes(b"abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_array_is_header_and_little_endian_bytes() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    by_hand = "sha256:" + hashlib.sha256(b"float32 3,4\n" + x.astype("<f4").tobytes()).hexdigest()
    assert digest_array(x) == by_hand
    assert digest_array(x.astype(">f4")) == by_hand, "byte order of the machine"
    assert digest_array(np.asfortranarray(x)) == by_hand, "layout in memory"
    assert digest_array(x[:, :]) != digest_array(x.reshape(4, 3)), "shape"
    assert digest_array(np.zeros(2, np.int32)) != digest_array(np.zeros(2, np.float32)), "dtype"
    assert digest_array(np.float32([0.0])) != digest_array(np.float32([-0.0])), "sign of zero"
    scalar = np.array(7, np.int32)
    assert digest_array(scalar) == digest_bytes(b"int32 \n\x07\x00\x00\x00")
    with pytest.raises(InputError):
        digest_array(np.array([object()]))


def test_array_golden() -> None:
    assert digest_array(np.array([1, 2, 3], np.int32)) == (
        "sha256:" + hashlib.sha256(bytes.fromhex("696e74333220330a010000000200000003000000")).hexdigest()
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), (False, "false"), (0, "0"), (-7, "-7"),
        ("a\"\n\x1f€", '"a\\"\\n\\u001f€"'),
        (2**53 - 1, "9007199254740991"), (2**53, '"9007199254740992"'), (-(2**63), '"-9223372036854775808"'),
        ([1, [2], {}], "[1,[2],{}]"), ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        # RFC 8785, appendix B
        (0.0, "0"), (-0.0, "0"), (5e-324, "5e-324"), (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"), (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"), (1e23, "1e+23"),
        (1.0000000000000001e23, "1.0000000000000001e+23"),
        (999999999999999700000.0, "999999999999999700000"),
        (999999999999999900000.0, "999999999999999900000"),
        (1e21, "1e+21"), (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"),
        (333333333.3333332, "333333333.3333332"), (0.8, "0.8"), (10000.0, "10000"),
        (1.5, "1.5"), (-1e-7, "-1e-7"),
        (1.2345e25, "1.2345e+25"),
    ],
)  # fmt: skip
def test_canonical_json(value: object, text: str) -> None:
    assert canonical_json(value).decode() == text


def test_keys_sort_by_utf16_units() -> None:
    # RFC 8785, section 3.2.3: a surrogate pair sorts before U+FB33.
    keys = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7}
    decoded = canonical_json(keys).decode()
    assert decoded == '{"\\r":2,"1":4,"\x80":6,"ö":7,"€":1,"😀":5,"\ufb33":3}'


def test_digest_json_ignores_the_order_of_keys() -> None:
    assert digest_json({"a": 1, "b": [1.0, 2]}) == digest_json({"b": [1, 2.0], "a": 1})
    assert digest_json({}) == digest_bytes(b"{}")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, b"x", object(), "\ud800", {"\ud800": 1}])
def test_values_without_a_canonical_form(value: object) -> None:
    with pytest.raises(InputError):
        canonical_json(value)
