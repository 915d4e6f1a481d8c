"""The only JSON that the ledger hashes: RFC 8785, with integers beyond ±(2⁵³ − 1) as strings.

A digest names its algorithm: ``sha256:`` and lower-case hex. docs/receipt.md writes the rules down for others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson
import rfc8785

from samebits.errors import InputError

FORMAT: Final = "samebits-ledger-1"
GENESIS: Final = "sha256:" + "0" * 64  # stands where the first record of a chain names the one before
EXACT: Final = 2**53 - 1  # greatest magnitude that every JSON reader keeps exact (RFC 8785, 3.2.2.3)
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def canonical(value: object) -> bytes:
    """The one UTF-8 encoding of a JSON value.

    Raises:
        InputError: a float is not finite, a key is no string, a string holds a lone surrogate, or a type is not JSON's.
    """
    try:
        return orjson.dumps(_common(value), option=_OPTIONS)
    except (_UncommonError, orjson.JSONEncodeError, RecursionError):  # JSONEncodeError: an integer beyond 53 bits
        pass
    try:
        return rfc8785.dumps(value)  # type: ignore[arg-type]  # it checks the value itself
    except rfc8785.IntegerDomainError:
        return canonical(_with_strings(value))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        # What the value is stays unsaid: it may be a secret.
        kind = "a number is not finite" if isinstance(error, rfc8785.FloatDomainError) else "no JSON that has one form"
        raise InputError(kind, field="value", remedy="Give what JSON can express, in valid Unicode.") from None
    except RecursionError:
        raise InputError("is nested too deeply", field="value", remedy="Give less than 100 levels.") from None


def read(data: bytes) -> Any:
    """The value of a canonical JSON text: one whose canonical text is the same again.

    Raises:
        ValueError: it is no JSON.
    """
    return json.loads(data, parse_int=_whole)


def _whole(digits: str) -> int | float:
    """A number without a point. Beyond ±(2⁵³ − 1) it was a float: an integer would be a string."""
    value = int(digits)
    return value if abs(value) <= EXACT else float(digits)


class _UncommonError(Exception):
    """The value is for the library that writes any."""


def _common(value: Any) -> Any:
    """The value in a form that orjson writes as RFC 8785 wants it, at a tenth of the time: with integers for the floats
    that are integers.

    Raises:
        _UncommonError: a name is not ASCII, which orjson would sort as UTF-8; a float is from 0.000001 to 0.00001,
            where the two do not agree on the exponent; or the other one is to say what is wrong.
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is dict:
        result = {}
        for name, item in value.items():
            if type(name) is not str or not name.isascii():
                raise _UncommonError
            result[name] = _common(item)
        return result
    if kind is list:
        return [_common(item) for item in value]
    if kind is float:
        size = abs(value)
        if size.is_integer():
            if size <= EXACT:
                return int(value)
        elif 1e-5 <= size < EXACT or 0 < size < 1e-6:
            return value
    raise _UncommonError


def _with_strings(value: Any) -> Any:
    """The value with each integer that is out of range as a string of its digits."""
    if isinstance(value, dict):
        return {key: _with_strings(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_strings(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > EXACT:
        return str(value)
    return value


def joined(members: Mapping[str, bytes]) -> bytes:
    """The canonical object of members that are canonical already.

    Args:
        members: ASCII names to canonical JSON, so that nothing is encoded twice.
    """
    assert all(name.isascii() for name in members), "only ASCII sorts alike as bytes and as UTF-16"
    return b"{" + b",".join(b'"%b":%b' % (name.encode(), members[name]) for name in sorted(members)) + b"}"


def digest(data: bytes) -> str:
    """``sha256:`` and the hex digest of bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def header(*, tenant: str, seq: int, id: str, kind: str, time_ns: int, prev: str, body_digest: str) -> bytes:
    """The canonical header of a record, whose digest is the record's hash.

    Written out, since a chain is read at the rate at which this runs; ids, kinds and digests need no escapes.
    """
    return (
        f'{{"body":"{body_digest}","id":"{id}","kind":"{kind}","ledger":"{FORMAT}","prev":"{prev}",'
        f'"seq":{seq},"tenant":{_quoted(tenant)},"time":"{time_ns}"}}'
    ).encode("utf-8", "surrogatepass")


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    try:
        return rfc8785.dumps(text).decode()
    except rfc8785.CanonicalizationError:  # no tenant was ever called so: a damaged name, to be found by its hash
        return f'"{text}"'
