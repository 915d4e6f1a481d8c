"""Public operations on the packed weights and the paged cache; see :mod:`samebits.kernels.ops`."""

from samebits.kernels.context import Context, available_isas, dispatch_table
from samebits.kernels.ops import (
    Draw,
    KvCache,
    PackedMatrix,
    argmax,
    attention,
    dequantize,
    embedding,
    linear,
    log_softmax,
    rmsnorm,
    rope_store,
    round_bf16,
    sample,
    silu_mul,
    topk,
)

__all__ = [
    "Context",
    "Draw",
    "KvCache",
    "PackedMatrix",
    "argmax",
    "attention",
    "available_isas",
    "dequantize",
    "dispatch_table",
    "embedding",
    "linear",
    "log_softmax",
    "rmsnorm",
    "rope_store",
    "round_bf16",
    "sample",
    "silu_mul",
    "topk",
]
