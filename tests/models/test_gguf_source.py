"""From a GGUF file to Hugging Face's names, shapes and row order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import quants

from samebits.errors import ModelError
from samebits.models import ModelSource, load_source
from samebits.models.gguf_source import half_split_order
from samebits.numerics import assert_bitwise_equal

Weights = dict[str, np.ndarray]
Write = Callable[..., Path]


def whole(source: ModelSource, name: str) -> np.ndarray:
    tensor = source.tensor(name)
    return tensor.rows(0, tensor.shape[0] if len(tensor.shape) == 2 else 1).reshape(tensor.shape)


def test_every_tensor_comes_back(write_gguf: Write, weights: Weights) -> None:
    source = load_source(write_gguf())
    assert source.names() == tuple(sorted(weights))
    for name, weight in weights.items():
        assert_bitwise_equal(whole(source, name), weight)


def test_row_order_matters(write_gguf: Write, weights: Weights) -> None:
    """Negative control: rows as GGUF stores them are not the half-split ones."""
    name = "model.layers.0.self_attn.q_proj.weight"
    stored = load_source(write_gguf()).tensor(name).data.view(np.float32).reshape(weights[name].shape)
    assert not np.array_equal(stored, weights[name])
    assert np.array_equal(np.sort(half_split_order(3, 8)), np.arange(24))


def test_part_of_the_rows(write_gguf: Write, weights: Weights) -> None:
    source = load_source(write_gguf())
    for name in ("model.layers.1.self_attn.k_proj.weight", "model.layers.1.mlp.up_proj.weight"):
        for start, stop in [(0, 0), (0, 1), (3, 7), (7, 8)]:
            assert_bitwise_equal(source.tensor(name).rows(start, stop), weights[name][start:stop])
        with pytest.raises(IndexError):
            source.tensor(name).rows(0, len(weights[name]) + 1)


def test_smollm2_weights_equal_gguf_quants(smollm2: ModelSource, smollm2_path: Path) -> None:
    reader = gguf.GGUFReader(smollm2_path)
    stored = {t.name: t for t in reader.tensors}

    def reference(name: str) -> np.ndarray:
        return np.asarray(quants.dequantize(stored[name].data, stored[name].tensor_type))

    assert len(smollm2.names()) == len(stored) == 272
    assert_bitwise_equal(whole(smollm2, "model.embed_tokens.weight"), reference("token_embd.weight"))
    assert_bitwise_equal(whole(smollm2, "model.layers.7.mlp.down_proj.weight"), reference("blk.7.ffn_down.weight"))
    for part, heads in (("q", 9), ("k", 3)):
        interleaved = reference(f"blk.29.attn_{part}.weight")
        expected = interleaved.reshape(heads, 32, 2, 576).swapaxes(1, 2).reshape(heads * 64, 576)
        assert_bitwise_equal(whole(smollm2, f"model.layers.29.self_attn.{part}_proj.weight"), expected)


def test_smollm2_configuration(smollm2: ModelSource) -> None:
    config = smollm2.config
    assert (config.hidden_size, config.num_layers, config.num_heads, config.num_kv_heads) == (576, 30, 9, 3)
    assert (config.head_dim, config.context_length, config.vocab_size) == (64, 8192, 49152)
    assert config.tie_word_embeddings
    assert config.context_limit_reason is None
    assert config.rope_theta == 100000.0


def test_weights_digest_is_that_of_the_file(write_gguf: Write) -> None:
    path = write_gguf()
    first = load_source(path).weights_digest
    assert first == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    assert load_source(path).weights_digest != first


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "qwen2"}, "architecture 'qwen2'.*llama"),
        ({"llama.expert_count": 8}, "expert_count is 8"),
        ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.type is 'yarn'"),
        ({"llama.rope.dimension_count": 2}, "rope.dimension_count is 2"),
        ({"llama.block_count": None}, "block_count is missing"),
        ({"llama.block_count": 3}, r"model.layers.2.input_layernorm.weight .* is missing"),
        ({"llama.block_count": 1}, "tensor model.layers.1.* is not part"),
        ({"llama.attention.head_count_kv": 4}, "k_proj.weight has shape"),
        ({"llama.attention.head_count": [4, 4]}, "head_count is"),
        ({"llama.expert_count": [1, 2]}, "expert_count is"),
        ({"split.count": 2}, "split model"),
    ],
)
def test_what_is_not_supported_is_named(write_gguf: Write, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_source(write_gguf(changes))


def test_unsupported_quantisation_is_named(write_gguf: Write) -> None:
    path = write_gguf()
    data = path.read_bytes()
    # The list entry of a tensor: its name, one dimension, its size, then the type.
    entry = b"output_norm.weight" + (1).to_bytes(4, "little") + (16).to_bytes(8, "little")
    at = data.index(entry) + len(entry)
    path.write_bytes(data[:at] + (23).to_bytes(4, "little") + data[at + 4 :])
    with pytest.raises(ModelError, match=r"output_norm.weight has the weight type IQ4_XS.*Q4_K"):
        load_source(path)


def test_rope_factors_and_window(write_gguf: Write) -> None:
    extra = {"rope_freqs.weight": np.array([1, 8], np.float32)}
    config = load_source(write_gguf({"llama.attention.sliding_window": 100}, extra)).config
    assert config.rope_scaling is not None
    assert config.rope_scaling.factors == (1.0, 8.0)
    assert config.context_length == 100
    assert "100 of 128" in (config.context_limit_reason or "")


def test_untied_head(write_gguf: Write, weights: Weights) -> None:
    head = weights["model.embed_tokens.weight"] + 1
    source = load_source(write_gguf(extra={"output.weight": head}))
    assert not source.config.tie_word_embeddings
    assert_bitwise_equal(whole(source, "lm_head.weight"), head)
