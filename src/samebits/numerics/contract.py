"""The constants of docs/numerics.md. A change that can move a bit changes `VERSION`."""

from __future__ import annotations

from typing import Final, Literal

Profile = Literal["fp32", "bf16", "int8"]
"""How matrices, keys and values are stored; section 2."""

VERSION: Final = "samebits-1"
PROFILES: Final[tuple[Profile, ...]] = ("fp32", "bf16", "int8")

K_BLOCK: Final = 512
"""Products per chain of a linear (section 3.1), at absolute multiples of k."""

KEY_BLOCK: Final = 256
"""Keys per block of attention (section 3.4), at absolute multiples of the position."""

SUM_BLOCK: Final = 256
"""Logits per block of the log-softmax sum (section 3.5), at absolute multiples of the token id."""

LANES: Final = 16
"""Accumulators of a lane sum (section 1.2)."""

BF16_FLUSH: Final = 2.0**-55
"""A bfloat16 of smaller magnitude becomes +0 (section 1.1)."""

INT8_BLOCK: Final = 128
"""Inputs of an int8 linear that share a scale (section 3.1), at absolute multiples of k."""

INT8_LEAST: Final = 2.0**-100
"""A block or channel whose greatest magnitude is smaller counts as zeros (section 3.1)."""

TEMPERATURE_LEAST: Final = 2.0**-17
"""A smaller temperature counts as 0, the argmax (section 4, step 4)."""

WEIGHT_BITS: Final = 40
"""The most likely token has the integer weight 2 to this (section 4, step 4)."""

TOP_P_BITS: Final = 32
"""Bits of the fixed-point top_p (section 4, step 6)."""

MAX_QUARTER_TURNS: Final = 2**20
"""Rotary angles are below this many times π/2 (section 1.5)."""
