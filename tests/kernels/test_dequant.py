"""csrc/dequant against gguf.quants, an independent implementation: bit by bit."""

from __future__ import annotations

from types import ModuleType

import gguf
import numpy as np
import pytest
from gguf import quants

from samebits.numerics import assert_bitwise_equal

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
# Byte offsets of the half-precision scales of a block.
SCALES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "F32": (),
    "BF16": (),
}


def block_size(type_name: str) -> tuple[int, int]:
    elements, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    return elements, nbytes


def random_blocks(type_name: str, count: int, seed: int) -> np.ndarray:
    """Random bytes with finite scales, denormals and zeros included."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (count, block_size(type_name)[1]), np.uint8)
    for at in SCALES.get(type_name, (0,)):
        high = blocks[:, at + 1]
        blocks[:, at + 1] = np.where(high & 0x7C == 0x7C, high & 0x83, high)
    if type_name in ("F32", "BF16"):
        blocks[:, -1] &= 0xBF
    return blocks


@pytest.mark.parametrize("type_name", TYPES)
def test_equals_gguf_on_random_blocks(kernels: ModuleType, type_name: str) -> None:
    blocks = random_blocks(type_name, 3001, 1)
    expected = quants.dequantize(blocks.copy(), gguf.GGMLQuantizationType[type_name]).reshape(-1)
    assert np.isfinite(expected).all()
    out = np.full(expected.shape, np.nan, np.float32)
    kernels.dequantize(type_name, blocks.reshape(-1), out)
    assert_bitwise_equal(out, expected)


def test_every_half_is_widened_exactly(kernels: ModuleType) -> None:
    halves = np.arange(65536, dtype=np.uint16)
    out = np.empty(65536, np.float32)
    kernels.dequantize("F16", halves.view(np.uint8), out)
    with np.errstate(invalid="ignore"):  # numpy warns of signalling NaNs on arm64
        expected = halves.view(np.float16).astype(np.float32)
    nan = np.isnan(expected)
    assert_bitwise_equal(out[~nan], expected[~nan])
    assert np.isnan(out[nan]).all()


@pytest.mark.parametrize("type_name", TYPES)
def test_source_needs_no_alignment(kernels: ModuleType, type_name: str) -> None:
    blocks = random_blocks(type_name, 5, 2).reshape(-1)
    shifted = np.empty(len(blocks) + 1, np.uint8)[1:]
    shifted[...] = blocks
    aligned, other = (np.empty(5 * block_size(type_name)[0], np.float32) for _ in range(2))
    kernels.dequantize(type_name, blocks, aligned)
    kernels.dequantize(type_name, shifted, other)
    assert_bitwise_equal(other, aligned)


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize(("extra_bytes", "extra_elements"), [(1, 0), (0, 1), (-1, 0), (0, -1)])
def test_sizes_that_disagree_are_refused(
    kernels: ModuleType, type_name: str, extra_bytes: int, extra_elements: int
) -> None:
    elements, nbytes = block_size(type_name)
    out = np.full(2 * elements + extra_elements, 7, np.float32)
    with pytest.raises(ValueError, match=type_name):
        kernels.dequantize(type_name, np.zeros(2 * nbytes + extra_bytes, np.uint8), out)
    assert (out == 7).all()


def test_unknown_type_is_refused(kernels: ModuleType) -> None:
    with pytest.raises(ValueError, match="Q3_K"):
        kernels.dequantize("Q3_K", np.zeros(110, np.uint8), np.zeros(256, np.float32))


def test_nothing_to_do_is_allowed(kernels: ModuleType) -> None:
    kernels.dequantize("Q4_K", np.zeros(0, np.uint8), np.zeros(0, np.float32))
