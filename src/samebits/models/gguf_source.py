"""A model from a GGUF file: names, shapes and row order turned into Hugging Face's."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from samebits.errors import ModelError
from samebits.models.config import ModelConfig, config_from_gguf
from samebits.models.generation_defaults import defaults_from_gguf
from samebits.models.gguf_file import GgufFile, TensorEntry, read_gguf
from samebits.models.gguf_tokenizer import tokenizer_from_gguf
from samebits.models.source import WEIGHT_FORMATS, ModelSource, RawTensor, check_tensors

_ROPE_FACTORS: Final = "rope_freqs.weight"
_NAMES: Final[Mapping[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_IN_LAYER: Final = re.compile(r"blk\.(0|[1-9]\d*)\.(\w+)\.(\w+)")


def load_gguf(path: Path) -> ModelSource:
    """Open a GGUF file; weights stay mapped.

    Raises:
        ModelError: the file is missing or damaged, or the model is not supported.
    """
    file = read_gguf(path)
    where = str(path)
    if "split.count" in file.metadata and file.metadata["split.count"] != 1:
        raise ModelError(
            "is one part of a split model",
            field=where,
            remedy="Merge the parts with llama-gguf-split --merge.",
        )
    stored = {name: _tensor(file, name, entry) for name, entry in file.tensors.items()}
    factors = stored.pop(_ROPE_FACTORS, None)
    tensors = {_canonical(name): tensor for name, tensor in stored.items()}
    embedding = tensors.get("model.embed_tokens.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(
            "tensor token_embd.weight is missing or not a matrix",
            field=where,
            remedy="Download the file again.",
        )
    config = config_from_gguf(
        file.metadata,
        vocab_size=embedding.shape[0],
        tied="lm_head.weight" not in tensors,
        rope_factors=None if factors is None else tuple(factors.rows(0, 1)[0].tolist()),
        where=where,
    )
    check_tensors(config, tensors, path)
    tokenizer = tokenizer_from_gguf(file.metadata, where)
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelError(
            f"has {tokenizer.vocab_size} tokens and an embedding of {config.vocab_size} rows",
            field=where,
            remedy="Download the file again.",
        )
    return ModelSource(
        config=config,
        tokenizer=tokenizer,
        generation_defaults=defaults_from_gguf(file.metadata, where),
        files=(path,),
        tensors=_half_split(config, tensors),
    )


def half_split_order(heads: int, head_dim: int) -> npt.NDArray[np.int64]:
    """For each row of a query or key matrix in half-split order, the row that GGUF stores it in, (heads ·
    head_dim,) int64.

    GGUF keeps the two rows of a rotated pair next to each other: its row 2i + j of a head is row j · D/2 + i.
    """
    stored = np.arange(heads * head_dim, dtype=np.int64).reshape(heads, head_dim // 2, 2)
    return np.ascontiguousarray(stored.transpose(0, 2, 1)).reshape(-1)


def _half_split(config: ModelConfig, tensors: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    orders = {
        ".self_attn.q_proj.weight": half_split_order(config.num_heads, config.head_dim),
        ".self_attn.k_proj.weight": half_split_order(config.num_kv_heads, config.head_dim),
    }
    return {
        name: next(
            (
                RawTensor(tensor.shape, tensor.type_name, tensor.data, order)
                for suffix, order in orders.items()
                if name.endswith(suffix)
            ),
            tensor,
        )
        for name, tensor in tensors.items()
    }


def _canonical(name: str) -> str:
    """Hugging Face's name of a tensor; the name itself, which check_tensors then refuses, where there is
    none.
    """
    if match := _IN_LAYER.fullmatch(name):
        layer, part, kind = match.groups()
        return f"model.layers.{layer}.{_LAYER_NAMES.get(part, part)}.{kind}"
    part, _, kind = name.partition(".")
    return f"{_NAMES.get(part, part)}.{kind}"


def _tensor(file: GgufFile, name: str, entry: TensorEntry) -> RawTensor:
    """The bytes of a tensor, of a type that can be dequantised and inside the file."""
    where = str(file.path)
    weights = WEIGHT_FORMATS.get(entry.type_name)
    if weights is None:
        raise ModelError(
            f"tensor {name} has the weight type {entry.type_name}, which is not supported",
            field=where,
            remedy=f"Use a file with {', '.join(WEIGHT_FORMATS)}.",
        )
    if len(entry.shape) not in (1, 2) or 0 in entry.shape or entry.shape[-1] % weights.elements != 0:
        raise ModelError(
            f"tensor {name} of shape {entry.shape} is not whole rows of {entry.type_name}",
            field=where,
            remedy="Download the file again.",
        )
    stop = entry.start + math.prod(entry.shape) // weights.elements * weights.nbytes
    if stop > len(file.data):
        raise ModelError(
            f"is truncated: tensor {name} ends at byte {stop} of {len(file.data)}",
            field=where,
            remedy="Download the file again.",
        )
    return RawTensor(entry.shape, entry.type_name, file.data[entry.start : stop])
