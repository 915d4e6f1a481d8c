"""exp and log against many-digit arithmetic, with bounds derived from their roundings."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from samebits.numerics import assert_bitwise_equal, exp32, fma32, log32

# exp = p · 2^n with p = fma(q, r, 1), |r| ≤ 0.347. The last rounding is ½ ulp. The others, in u = 2^-24
# (ulp(p) is u below 1 and 2u above):
#                                     p ≥ 1 (r ≥ 0)           p < 1 (worst at r = -0.347, p = 0.707)
#   q rounded, times |r|              1 · 0.347 = 0.35        0.5 · 0.347 = 0.18
#   the step before, times r²         0.5 · 0.12 = 0.06       0.25 · 0.12 = 0.03
#   r rounded (¼ u), times p          0.25 · 1.42 = 0.36      0.25 · 0.707 = 0.18
#   polynomial, 0.064 times p         0.09                    0.05
#   the rest (earlier steps, ln 2)    0.02                    0.01
#   sum, in ulp(p)                    0.88 / 2 = 0.44         0.45
EXP_ULPS = 1.0


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Error in ulps of the exact result, for which binary64 is exact enough (2^-52 against 2^-24)."""
    return np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)


@pytest.fixture(scope="module")
def inputs() -> np.ndarray:
    rng = np.random.default_rng(13)
    ln2 = np.log(2)
    ties = (np.arange(-125, 127)[:, None] + 0.5) * ln2 + np.linspace(-1e-4, 1e-4, 401)  # where n changes
    parts = [
        rng.uniform(-87, 88, 400_000),
        rng.uniform(-ln2 / 2, ln2 / 2, 400_000),
        rng.choice([-1, 1], 100_000) * np.exp(rng.uniform(-90, 4.4, 100_000)),
        ties.ravel(),
        np.linspace(-87, -86, 20_000),
        np.linspace(87, 88, 20_000),
    ]
    x = np.concatenate(parts).astype(np.float32)
    return x[(x >= -87) & (x <= 88)]


def test_exp_within_one_ulp(inputs: np.ndarray) -> None:
    got = exp32(inputs)
    assert ulps(got, np.exp(inputs.astype(np.float64))).max() < EXP_ULPS
    assert (got >= np.finfo(np.float32).tiny).all(), "a denormal"


def test_exp_against_mpmath(inputs: np.ndarray) -> None:
    x = np.random.default_rng(1).choice(inputs, 2000)
    with mpmath.workdps(30):
        exact = [mpmath.exp(mpmath.mpf(float(v))) for v in x]
        relative = [abs(mpmath.mpf(float(y)) / e - 1) for y, e in zip(exp32(x), exact, strict=True)]
    assert max(relative) < 1.88 * 2.0**-24  # 0.94 ulp of p, which is at most 2u


def test_exp_near_any_argument_is_nearly_monotonic() -> None:
    for centre in (-86.9, -40.0, -1.0, -0.34657, 0.34657, 1.0, 50.0):
        x = (np.float32(centre).view(np.uint32) + np.arange(100_000, dtype=np.uint32)).view(np.float32)
        y = exp32(np.sort(x))
        steps = np.diff(y.view(np.int32))
        assert steps.min() >= -1, centre  # an error below one ulp lets neighbours swap by at most one


def test_exp_fixed_points_and_ends() -> None:
    inf, nan = np.inf, np.nan
    below = np.nextafter(np.float32(-87), np.float32(-inf))
    x = np.array([0.0, -0.0, -inf, below, -1e30, nan, 88.0, np.nextafter(np.float32(88), np.float32(99)), inf, 1e-45])
    top = exp32(np.float32(88))
    expected = np.array([1, 1, 0, 0, 0, nan, top, top, top, 1], np.float32)
    assert_bitwise_equal(exp32(x.astype(np.float32)), expected)
    assert exp32(np.float32(-87)) >= np.finfo(np.float32).tiny
    assert exp32(0.0).shape == ()


def test_exp_step_by_step() -> None:
    """The text of section 1.3 once more, operation by operation, for one input."""
    x = np.float32(-3.7)
    t = fma32(x, np.float32(float.fromhex("0x1.715476p+0")), np.float32(float.fromhex("0x1.8p+23")))
    n = int(t.view(np.uint32) & 0xFF)  # the low bits of t are n, as in the kernels
    n = n - 256 if n > 127 else n
    assert n == round(-3.7 / np.log(2)) == -5
    r = fma32(np.float32(n), np.float32(-float.fromhex("0x1.62e400p-1")), x)
    r = fma32(np.float32(n), np.float32(-float.fromhex("0x1.7f7d1cp-20")), r)
    p = np.float32(float.fromhex("0x1.6a2434p-10"))
    for c in ("0x1.1239e2p-7", "0x1.5558f2p-5", "0x1.555492p-3", "0x1.fffffcp-2", "0x1p+0", "0x1p+0"):
        p = fma32(p, r, np.float32(float.fromhex(c)))
    assert_bitwise_equal(exp32(x), np.asarray(np.float32(float(p) * 2.0**n)))


def test_log_is_almost_always_the_nearest_float() -> None:
    rng = np.random.default_rng(14)
    sweep = (np.float32(1).view(np.uint32) + np.arange(200_000, dtype=np.uint32)).view(np.float32)
    x = np.concatenate([np.exp(rng.uniform(0, 88, 300_000)), 1 + np.exp(rng.uniform(-16, 0, 200_000))])
    x = np.concatenate([x.astype(np.float32), sweep])
    # The series ends at 2.4e-17 relative, then a few binary64 roundings and one to float: ½ ulp + 2^-26.
    exact = np.log(x.astype(np.float64))
    error = ulps(log32(x)[x > 1], exact[x > 1])
    assert error.max() < 0.5 + 2.0**-26


def test_log_against_mpmath_and_ends() -> None:
    x = np.exp(np.random.default_rng(2).uniform(0, 20, 2000)).astype(np.float32)
    with mpmath.workdps(30):
        exact = np.array([float(mpmath.log(mpmath.mpf(float(v)))) for v in x])
    assert ulps(log32(x), exact).max() < 0.5 + 2.0**-26
    assert_bitwise_equal(log32(np.float32([1.0, np.nan])), np.float32([0.0, np.nan]))
    assert float(log32(np.float32(3.4e38))) == pytest.approx(88.722, abs=1e-3)
