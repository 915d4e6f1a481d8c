"""Digests and canonical JSON, sections 5 and 7 of docs/numerics.md."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.errors import InputError

_EXACT_INTEGER = 2**53 - 1  # greatest magnitude that every JSON reader keeps exact (RFC 8785, 3.2.2.3)


def digest_bytes(data: bytes | bytearray | memoryview) -> str:
    """Return `sha256:` and the lower-case hex digest of `data`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_array(array: NDArray[Any]) -> str:
    """Return the digest of an array: the line `dtype shape` (`float32 3,4`), then its little-endian bytes.

    Raises:
        InputError: the elements are not booleans or numbers.
    """
    if array.dtype.kind not in "biufc":
        raise InputError(f"elements of type {array.dtype} have no digest", field="array", remedy="Use a numeric array.")
    header = f"{array.dtype.name} {','.join(map(str, array.shape))}\n".encode("ascii")
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    state = hashlib.sha256(header)
    state.update(little.tobytes())
    return "sha256:" + state.hexdigest()


def digest_json(value: object) -> str:
    """Return the digest of the canonical JSON of `value`."""
    return digest_bytes(canonical_json(value))


def canonical_json(value: object) -> bytes:
    """Return the one UTF-8 encoding of `value` by RFC 8785; integers beyond ±(2⁵³ − 1) become strings.

    Raises:
        InputError: a float is not finite, a key is not a string, a string holds a lone surrogate, or a value is of a
            type that JSON lacks.
    """
    try:
        return _encode(value).encode("utf-8")
    except UnicodeEncodeError as error:
        raise _refusal("a string holds a lone surrogate") from error


def _encode(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(value) if abs(value) <= _EXACT_INTEGER else f'"{value}"'
    if isinstance(value, float):
        return _encode_float(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise _refusal("a key is not a string")
        # RFC 8785 sorts by UTF-16 code units, which differs from code points above U+FFFF.
        items = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_encode(key)}:{_encode(item)}" for key, item in items) + "}"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return "[" + ",".join(map(_encode, value)) + "]"
    raise _refusal(f"{type(value).__name__} is not a JSON type")


def _encode_float(value: float) -> str:
    """Return the digits of ECMAScript's Number::toString, which RFC 8785 prescribes."""
    if not math.isfinite(value):
        raise _refusal(f"{value} has no JSON form")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)  # the decimal point stands before digits[point]
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def _refusal(message: str) -> InputError:
    return InputError(message, field="value", remedy="Use only what JSON can express.")
