"""Comparison of arrays by bits, naming the first difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.errors import InputError


@dataclass(frozen=True)
class Difference:
    """The first element, in C order, in which two arrays differ.

    Attributes:
        index: where it is.
        actual, expected: the two values in decimal, with as many digits as tell them apart.
        actual_hex, expected_hex: their bit patterns.
        ulps: how many representable values lie between them (for integers, the distance); None when one is
        a NaN. differing, total: the number of differing elements and of all elements.
    """

    index: tuple[int, ...]
    actual: str
    expected: str
    actual_hex: str
    expected_hex: str
    ulps: int | None
    differing: int
    total: int

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        distance = "a NaN against a number" if self.ulps is None else f"{self.ulps} ulp"
        return (
            f"{self.differing} of {self.total} elements differ; first at [{place}]: actual {self.actual} "
            f"({self.actual_hex}), expected {self.expected} ({self.expected_hex}), {distance}"
        )


def first_difference(actual: NDArray[Any], expected: NDArray[Any]) -> Difference | None:
    """Return the first difference in bits, or None. +0 and −0 differ; a NaN equals every NaN.

    Raises:
        InputError: shapes or dtypes differ, or the elements are not booleans, integers or floats.
    """
    left, right = np.asarray(actual), np.asarray(expected)
    if left.shape != right.shape or left.dtype != right.dtype or left.dtype.kind not in "biuf":
        raise InputError(
            f"{left.dtype} {left.shape} cannot be compared by bits with {right.dtype} {right.shape}",
            field="actual",
            remedy="Pass numeric arrays of one shape and one dtype.",
        )
    left_bits, right_bits = _bits(left), _bits(right)
    different = left_bits != right_bits
    if left.dtype.kind == "f":
        different &= ~(np.isnan(left) & np.isnan(right)).ravel()
    if not different.any():
        return None
    at = int(np.argmax(different))
    one, other = left.ravel()[at], right.ravel()[at]
    digits = 2 * left.dtype.itemsize
    return Difference(
        index=tuple(int(i) for i in np.unravel_index(at, left.shape)),
        actual=str(one),
        expected=str(other),
        actual_hex=f"0x{int(left_bits[at]):0{digits}x}",
        expected_hex=f"0x{int(right_bits[at]):0{digits}x}",
        ulps=_distance(one, other, int(left_bits[at]), int(right_bits[at])),
        differing=int(np.count_nonzero(different)),
        total=left.size,
    )


def assert_bitwise_equal(actual: NDArray[Any], expected: NDArray[Any], name: str = "") -> None:
    """Assert that two arrays have one shape, one dtype and the same bits (a NaN equals every NaN).

    Raises:
        AssertionError: they differ; the message begins with `name` and names the first difference.
    """
    prefix = f"{name}: " if name else ""
    left, right = np.asarray(actual), np.asarray(expected)
    if left.shape != right.shape:
        raise AssertionError(f"{prefix}shape {left.shape}, expected {right.shape}")
    if left.dtype != right.dtype:
        raise AssertionError(f"{prefix}dtype {left.dtype}, expected {right.dtype}")
    difference = first_difference(left, right)
    if difference is not None:
        raise AssertionError(prefix + str(difference))


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).reshape(-1).view(np.dtype(f"u{array.dtype.itemsize}"))


def _distance(one: Any, other: Any, one_bits: int, other_bits: int) -> int | None:
    if one.dtype.kind != "f":
        return abs(int(one) - int(other))
    if np.isnan(one) or np.isnan(other):
        return None
    sign = 1 << (8 * int(one.dtype.itemsize) - 1)
    # Floats in order of value: negative patterns count downwards from −1, so −0 and +0 are one apart.
    first, second = (bits if bits < sign else sign - 1 - bits for bits in (one_bits, other_bits))
    return abs(first - second)
