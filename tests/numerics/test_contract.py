"""The constants of docs/numerics.md, derived again with many digits, and the text itself against the code."""

from __future__ import annotations

from pathlib import Path

import mpmath
import numpy as np
import pytest

from samebits.numerics import INT8_BLOCK, VERSION, exact, rope

TEXT = (Path(__file__).parents[2] / "docs" / "numerics.md").read_text(encoding="utf-8")


def significant_bits(x: float) -> int:
    numerator = abs(x.as_integer_ratio()[0])
    return numerator.bit_length() - ((numerator & -numerator).bit_length() - 1)


def horner(coefficients: tuple[float, ...], x: mpmath.mpf) -> mpmath.mpf:
    value = mpmath.mpf(0)
    for c in coefficients:
        value = value * x + float(c)
    return value


@pytest.mark.parametrize(
    "literal",
    ["0x1.715476p+0", "0x1.8p+23", "0x1.62e400p-1", "0x1.7f7d1cp-20", "0x1.6a2434p-10", "0x1.1239e2p-7",
     "0x1.5558f2p-5", "0x1.555492p-3", "0x1.fffffcp-2", "0x1.6a09e667f3bcdp+0", "0x1.62e42fefa39efp-1",
     "0x1.45f306dc9c883p-1", "0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69"],
)  # fmt: skip
def test_every_constant_of_the_text_is_in_the_code(literal: str) -> None:
    assert f"`{literal}`" in TEXT
    values = [v for module in (exact, rope) for v in vars(module).values()]
    numbers = {abs(float(v)) for v in values if isinstance(v, float | np.floating)}
    numbers |= {float(v) for value in values if isinstance(value, tuple) for v in value}
    assert float.fromhex(literal) in numbers


def test_exp_constants() -> None:
    with mpmath.workdps(40):
        ln2 = mpmath.log(2)
        high, low = float.fromhex("0x1.62e400p-1"), float.fromhex("0x1.7f7d1cp-20")
        assert np.float32(float(1 / ln2)) == np.float32(float.fromhex("0x1.715476p+0"))
        assert np.float32(float(ln2 - high)) == np.float32(low)
        assert significant_bits(high) + 7 <= 24, "n × high is exact for |n| < 128"
        worst = mpmath.mpf(0)
        for i in range(-2000, 2001):
            r = ln2 / 2 * i / 2000
            worst = max(worst, abs(horner(exact._EXP_COEFFICIENTS, r) / mpmath.exp(r) - 1))
        assert 3.7e-9 < worst < 3.8e-9
        assert mpmath.exp(-87) > mpmath.mpf(2) ** -126, "no denormal"
        assert mpmath.nint(-87 / ln2) == -126
        assert mpmath.nint(88 / ln2) == 127


def test_log_constants() -> None:
    with mpmath.workdps(40):
        assert float(mpmath.sqrt(2)) == float.fromhex("0x1.6a09e667f3bcdp+0")
        assert float(mpmath.log(2)) == float.fromhex("0x1.62e42fefa39efp-1")
        z = (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)
        series = 2 * z * sum(z ** (2 * k) / (2 * k + 1) for k in range(10))
        assert abs(series / (mpmath.log(2) / 2) - 1) < 2.5e-17


def test_rotary_constants() -> None:
    p1, p2, p3 = rope._P1, rope._P2, rope._P3
    with mpmath.workdps(60):
        assert float(2 / mpmath.pi) == rope._TWO_OVER_PI
        assert abs(mpmath.pi / 2 - p1 - p2 - p3) < 1.1e-37
        assert (significant_bits(p1), significant_bits(p2)) == (31, 32)
        assert all(c == float(s / mpmath.factorial(k)) for c, s, k in zip(
            rope._SINE + rope._COSINE, (-1, 1) * 3 + (-1, 1) + (-1, 1) * 3 + (-1,),
            (15, 13, 11, 9, 7, 5, 3, 16, 14, 12, 10, 8, 6, 4, 2), strict=True))  # fmt: skip
        r = mpmath.pi / 4
        sine = r + r**3 * horner(rope._SINE, r * r)
        cosine = 1 + r**2 * horner(rope._COSINE, r * r)
        assert abs(sine / mpmath.sin(r) - 1) < 2.0**-53
        assert abs(cosine / mpmath.cos(r) - 1) < 2.0**-53


def test_limits() -> None:
    assert f"`{VERSION}`" in TEXT
    assert INT8_BLOCK * 127**2 < 2**24, "a block's sum is exact as a float"
    # bf16 operands are multiples of 2^-62 (8 bits from 2^-55 down): sums of products are multiples of 2^-124.
    assert np.finfo(np.float32).tiny < (2.0**-62) ** 2
    assert 2**18 * 2**40 < 2**63, "a sum of weights over a vocabulary of 262,144"
