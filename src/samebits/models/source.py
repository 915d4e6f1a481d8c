"""What a decoder needs of a model: its shape, its weights under one set of names, its tokenizer and its
defaults.

Tensors carry Hugging Face names (``model.layers.0.self_attn.q_proj.weight``) whatever the file format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from samebits import kernels
from samebits.errors import ModelError
from samebits.models.config import ModelConfig
from samebits.models.digests import digest_files
from samebits.models.generation_defaults import GenerationDefaults
from samebits.models.tokenizer import Tokenizer

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class WeightFormat:
    """Elements and bytes of one block of a stored weight type."""

    elements: int
    nbytes: int


# The types that csrc/dequant.h reads.
WEIGHT_FORMATS: Mapping[str, WeightFormat] = {
    "F32": WeightFormat(1, 4),
    "F16": WeightFormat(1, 2),
    "BF16": WeightFormat(1, 2),
    "Q8_0": WeightFormat(32, 34),
    "Q4_0": WeightFormat(32, 18),
    "Q4_1": WeightFormat(32, 20),
    "Q5_0": WeightFormat(32, 22),
    "Q5_1": WeightFormat(32, 24),
    "Q4_K": WeightFormat(256, 144),
    "Q5_K": WeightFormat(256, 176),
    "Q6_K": WeightFormat(256, 210),
}


@dataclass(frozen=True)
class RawTensor:
    """A vector (n,) or matrix (rows, cols) as the file stores it. A vector counts as one row.

    Attributes:
        shape: (n,) or (rows, cols).
        type_name: a key of WEIGHT_FORMATS; a row is a whole number of its blocks.
        data: the bytes of all rows, uint8, mapped from the file and read-only.
        row_order: the stored row that is row i of this tensor, int64 (rows,), or None where they are in
            order.
    """

    shape: tuple[int, ...]
    type_name: str
    data: Bytes
    row_order: npt.NDArray[np.int64] | None = None

    def rows(self, start: int, stop: int) -> Floats:
        """Rows start … stop − 1 as float32 (stop − start, cols), in new memory."""
        count, cols = (1, *self.shape) if len(self.shape) == 1 else self.shape
        if not 0 <= start <= stop <= count:
            raise IndexError(f"rows {start} to {stop} of {count}")
        stored = self.data.reshape(count, -1)
        chosen = stored[start:stop] if self.row_order is None else stored[self.row_order[start:stop]]
        out = np.empty((stop - start, cols), np.float32)
        kernels.dequantize(self.type_name, chosen.reshape(-1), out.reshape(-1))
        return out


@dataclass(frozen=True)
class ModelSource:
    """A model on disk, checked: every tensor the architecture needs is there, in its shape, and no other.

    Attributes:
        files: what ``weights_digest`` covers, in the order it covers them.
    """

    config: ModelConfig
    tokenizer: Tokenizer
    generation_defaults: GenerationDefaults
    files: tuple[Path, ...]
    tensors: Mapping[str, RawTensor] = field(repr=False)

    def names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted."""
        return tuple(sorted(self.tensors))

    def tensor(self, name: str) -> RawTensor:
        """The tensor of that name; KeyError where there is none."""
        return self.tensors[name]

    @cached_property
    def weights_digest(self) -> str:
        """Digest of the files (samebits.models.digests); reads them whole, once, when first asked for."""
        return digest_files(self.files)


def expected_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor of a Llama model of this configuration."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, pairs = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    yield "model.norm.weight", (hidden,)
    if not config.tie_word_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)
    for i in range(config.num_layers):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.self_attn.q_proj.weight", (queries, hidden)
        yield f"{layer}.self_attn.k_proj.weight", (pairs, hidden)
        yield f"{layer}.self_attn.v_proj.weight", (pairs, hidden)
        yield f"{layer}.self_attn.o_proj.weight", (hidden, queries)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
        yield f"{layer}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.up_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner)


def check_tensors(config: ModelConfig, tensors: Mapping[str, RawTensor], path: Path) -> None:
    """Compare what a file holds with what the architecture needs.

    Raises:
        ModelError: a tensor is missing, unknown or of another shape; it is named.
    """
    where = str(path)
    expected = set()
    # One at a time: a damaged file can announce billions of layers, and ends at the first that is missing.
    for name, shape in expected_shapes(config):
        if name not in tensors:
            raise ModelError(f"tensor {name} {shape} is missing", field=where, remedy="Download it again.")
        if tensors[name].shape != shape:
            raise ModelError(
                f"tensor {name} has shape {tensors[name].shape}, its configuration needs {shape}",
                field=where,
                remedy="Use the configuration that belongs to these weights.",
            )
        expected.add(name)
    unknown = sorted(tensors.keys() - expected)
    if unknown:
        raise ModelError(
            f"tensor {unknown[0]} is not part of a Llama model ({len(unknown)} such)",
            field=where,
            remedy="Use a model without adapters, biases or extra heads.",
        )
