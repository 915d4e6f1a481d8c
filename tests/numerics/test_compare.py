"""Comparison by bits: what counts as equal, and what a failure says."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.errors import InputError
from samebits.numerics import assert_bitwise_equal, first_difference


def test_equal_arrays_and_any_nan() -> None:
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32)
    assert first_difference(nans, nans[::-1].copy()) is None
    assert first_difference(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)) is None
    assert_bitwise_equal(np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3))


def test_first_difference_is_named_in_full() -> None:
    expected = np.ones((3, 4), np.float32)
    actual = expected.copy()
    actual[1, 2], actual[2, 0] = np.nextafter(np.float32(1), np.float32(2)), 5
    difference = first_difference(actual, expected)
    assert difference is not None
    assert (difference.index, difference.ulps, difference.differing, difference.total) == ((1, 2), 1, 2, 12)
    assert (difference.actual_hex, difference.expected_hex) == ("0x3f800001", "0x3f800000")
    assert (difference.actual, difference.expected) == ("1.0000001", "1.0")
    with pytest.raises(AssertionError, match=r"^logits: 2 of 12 elements differ; first at \[1, 2\].*0x3f800001.*1 ulp"):
        assert_bitwise_equal(actual, expected, "logits")


@pytest.mark.parametrize(
    ("one", "other", "ulps"),
    [(0.0, -0.0, 1), (1.0, 2.0, 2**23), (-1e-45, 1e-45, 3), (np.inf, 3.4028235e38, 1), (np.nan, 1.0, None)],
)
def test_distances(one: float, other: float, ulps: int | None) -> None:
    difference = first_difference(np.float32([one]), np.float32([other]))
    assert difference is not None
    assert difference.ulps == ulps


def test_integers_and_layouts() -> None:
    difference = first_difference(np.int8([1, -5]), np.int8([1, 7]))
    assert difference is not None
    assert (difference.ulps, difference.actual, difference.actual_hex) == (12, "-5", "0xfb")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert_bitwise_equal(np.asfortranarray(x), x)
    swapped = x.T.copy().T
    swapped[0, 1] = 9
    difference = first_difference(swapped, x)
    assert difference is not None
    assert difference.index == (0, 1), "C order, whatever the layout"


def test_close_is_not_equal_and_shapes_and_dtypes_count() -> None:
    with pytest.raises(AssertionError, match="shape"):
        assert_bitwise_equal(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(AssertionError, match="dtype"):
        assert_bitwise_equal(np.zeros(3), np.zeros(3, np.float32))
    with pytest.raises(InputError):
        first_difference(np.zeros(3), np.zeros(3, np.float32))
    with pytest.raises(AssertionError, match="1 ulp"):
        assert_bitwise_equal(np.array(0.0), np.array(-0.0))
