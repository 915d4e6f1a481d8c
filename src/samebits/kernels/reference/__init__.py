"""The kernels' definition: docs/numerics.md as plain numpy, one file an operation.

Slow, short and independent of the machine. The compiled kernels of the same names have to return the same
bits; tests/kernels compares them. Only the order that the contract fixes is a loop here; every other
dimension is an axis.
"""

from samebits.kernels.reference.attention import attention
from samebits.kernels.reference.embedding import embedding
from samebits.kernels.reference.linear import Quantized, linear, quantize
from samebits.kernels.reference.log_softmax import log_softmax
from samebits.kernels.reference.rmsnorm import rmsnorm
from samebits.kernels.reference.rope import rotate
from samebits.kernels.reference.sample import adjust, sample
from samebits.kernels.reference.silu_mul import silu_mul
from samebits.kernels.reference.topk import TopK, argmax, topk

__all__ = [
    "Quantized",
    "TopK",
    "adjust",
    "argmax",
    "attention",
    "embedding",
    "linear",
    "log_softmax",
    "quantize",
    "rmsnorm",
    "rotate",
    "sample",
    "silu_mul",
    "topk",
]
