"""Rotary frequencies of a model (docs/numerics.md, sections 1.5 and 6)."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import Final

import numpy as np
import numpy.typing as npt

from samebits.models.config import ModelConfig, RopeScaling

_TWO_PI: Final = float.fromhex("0x1.921fb54442d18p+2")
# Digits of θ^(−2i/D). A binary64 has 17; a wrong rounding would need the next 33 digits to be all 0 or all 9.
_DIGITS: Final = 50


def inverse_frequencies(config: ModelConfig) -> npt.NDArray[np.float32]:
    """Radians per position of each pair of a head, (head_dim / 2,) float32."""
    theta, dim = Decimal(config.rope_theta), config.head_dim
    with localcontext(Context(prec=_DIGITS)):
        plain = [float(theta ** (Decimal(-2 * i) / dim)) for i in range(dim // 2)]
    if config.rope_scaling is not None:
        plain = [_scaled(f, i, config.rope_scaling) for i, f in enumerate(plain)]
    with np.errstate(over="ignore"):  # rope_tables refuses an infinite one
        return np.array(plain, np.float64).astype(np.float32)


def _scaled(f: float, i: int, scaling: RopeScaling) -> float:
    """Frequency i after scaling, in binary64, in the order of section 6."""
    if scaling.kind == "factors":
        return f / scaling.factors[i]
    if scaling.kind == "linear":
        return f / scaling.factor
    wavelength = _TWO_PI / f
    if wavelength < scaling.original_context / scaling.high:
        return f
    if wavelength > scaling.original_context / scaling.low:
        return f / scaling.factor
    g = (scaling.original_context / wavelength - scaling.low) / (scaling.high - scaling.low)
    return (1 - g) * (f / scaling.factor) + g * f
