"""The numerics contract as code: constants, exact functions, random numbers, digests and comparison by bits.

docs/numerics.md is the text; the docstrings here point to its sections. Everything is plain numpy and plain
integers, and nothing here depends on the machine. `rope_tables`, the random numbers and the digests are
used at run time; the rest of the arithmetic is the slow definition that the compiled kernels are compared
with.
"""

from samebits.numerics.compare import Difference, assert_bitwise_equal, first_difference
from samebits.numerics.contract import (
    BF16_FLUSH,
    INT8_BLOCK,
    INT8_LEAST,
    K_BLOCK,
    KEY_BLOCK,
    LANES,
    MAX_QUARTER_TURNS,
    PROFILES,
    SUM_BLOCK,
    TEMPERATURE_LEAST,
    TOP_P_BITS,
    VERSION,
    WEIGHT_BITS,
    Profile,
)
from samebits.numerics.digests import canonical_json, digest_array, digest_bytes, digest_json
from samebits.numerics.exact import (
    bf16_round,
    exp32,
    fma32,
    lanes16_sum,
    lanes16_sum_squares,
    lanes16_tree,
    log32,
    rsqrt32,
)
from samebits.numerics.philox import philox4x32, random_u64
from samebits.numerics.rope import RopeTables, rope_tables, sincos32

__all__ = [
    "BF16_FLUSH",
    "INT8_BLOCK",
    "INT8_LEAST",
    "KEY_BLOCK",
    "K_BLOCK",
    "LANES",
    "MAX_QUARTER_TURNS",
    "PROFILES",
    "SUM_BLOCK",
    "TEMPERATURE_LEAST",
    "TOP_P_BITS",
    "VERSION",
    "WEIGHT_BITS",
    "Difference",
    "Profile",
    "RopeTables",
    "assert_bitwise_equal",
    "bf16_round",
    "canonical_json",
    "digest_array",
    "digest_bytes",
    "digest_json",
    "exp32",
    "first_difference",
    "fma32",
    "lanes16_sum",
    "lanes16_sum_squares",
    "lanes16_tree",
    "log32",
    "philox4x32",
    "random_u64",
    "rope_tables",
    "rsqrt32",
    "sincos32",
]
