"""Tiny models, written by the packages gguf, safetensors and tokenizers; the real SmolLM2 where installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

from samebits.models import ModelSource, load_source
from samebits.models.tokenizer import byte_alphabet

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 16, 24, 2, 4, 2, 4
SPECIALS = ["<bos>", "<eos>", "<eot>"]
MERGES = ["1 2", "12 3", "123 4", "h e", "l l", "he ll", "hell o", "w o", "wo r", "wor l", "worl d"]
TOKENS = [*byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES), *SPECIALS]
BOS, EOS, EOT = (len(TOKENS) - 3 + i for i in range(3))
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> ModelSource:
    return load_source("smollm2")


@pytest.fixture(scope="session")
def weights() -> dict[str, np.ndarray]:
    """Float32 weights of a tiny Llama model, by Hugging Face name."""
    rng = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (len(TOKENS), HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for i in range(LAYERS):
        shapes |= {
            f"model.layers.{i}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (HIDDEN,),
                "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
                "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
                "post_attention_layernorm": (HIDDEN,),
                "mlp.gate_proj": (INNER, HIDDEN),
                "mlp.up_proj": (INNER, HIDDEN),
                "mlp.down_proj": (HIDDEN, INNER),
            }.items()
        }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """The row order in which converters write query and key rows of Llama models."""
    rows, cols = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def gguf_tensors(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same weights as a converter to GGUF names and orders them."""
    tensors = {}
    for name, weight in weights.items():
        if "q_proj" in name:
            weight = interleaved(weight, HEADS)
        elif "k_proj" in name:
            weight = interleaved(weight, KV_HEADS)
        for theirs, ours in GGUF_NAMES.items():
            name = name.replace(theirs, ours)
        tensors[name] = weight
    return tensors


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """What the tiny models hold."""
    return SimpleNamespace(
        tokens=TOKENS,
        bos=BOS,
        eos=EOS,
        eot=EOT,
        config=CONFIG,
        heads=HEADS,
        kv_heads=KV_HEADS,
        template=TEMPLATE,
    )


WriteGguf = Callable[..., Path]


@pytest.fixture
def write_gguf(tmp_path: Path, weights: dict[str, np.ndarray]) -> WriteGguf:
    """Write a tiny GGUF model. ``changes`` replace metadata (None removes a key), ``extra`` adds tensors."""

    def write(changes: dict[str, Any] | None = None, extra: dict[str, np.ndarray] | None = None) -> Path:
        path = tmp_path / "tiny.gguf"
        values: dict[str, Any] = {
            "general.architecture": "llama",
            "llama.block_count": LAYERS,
            "llama.context_length": 128,
            "llama.embedding_length": HIDDEN,
            "llama.feed_forward_length": INNER,
            "llama.attention.head_count": HEADS,
            "llama.attention.head_count_kv": KV_HEADS,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10000.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": TOKENS,
            "tokenizer.ggml.token_type": [1] * (len(TOKENS) - 3) + [3] * 3,
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": BOS,
            "tokenizer.ggml.eos_token_id": EOS,
            "tokenizer.ggml.eot_token_id": EOT,
            "tokenizer.ggml.add_bos_token": True,
            "tokenizer.chat_template": TEMPLATE,
        }
        values |= changes or {}
        writer = gguf.GGUFWriter(path, str(values.pop("general.architecture")))
        for key, value in values.items():
            match value:
                case bool():
                    writer.add_bool(key, value)
                case int():
                    writer.add_uint32(key, value)
                case float():
                    writer.add_float32(key, value)
                case str():
                    writer.add_string(key, value)
                case list():
                    writer.add_array(key, value)
        for name, tensor in (gguf_tensors(weights) | (extra or {})).items():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": len(TOKENS),
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}

WriteFolder = Callable[..., Path]


@pytest.fixture
def write_folder(tmp_path: Path, weights: dict[str, np.ndarray]) -> WriteFolder:
    """Write a tiny model folder. ``config`` changes keys, ``tensors`` replace all, ``files`` are added."""

    def write(
        config: dict[str, Any] | None = None,
        tensors: dict[str, np.ndarray] | None = None,
        files: dict[str, Any] | None = None,
    ) -> Path:
        folder = tmp_path / "tiny"
        folder.mkdir(exist_ok=True)
        backend = tokenizers.Tokenizer(
            tokenizers.models.BPE(
                vocab={token: i for i, token in enumerate(TOKENS)},
                merges=[(a, b) for a, b in (merge.split(" ") for merge in MERGES)],
            )
        )
        backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = tokenizers.decoders.ByteLevel()
        backend.add_special_tokens([tokenizers.AddedToken(t, normalized=False, special=True) for t in SPECIALS])
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", BOS)]
        )
        backend.enable_truncation(4)
        backend.enable_padding(length=64)
        backend.save(str(folder / "tokenizer.json"))
        contents: dict[str, Any] = {
            "config.json": CONFIG | (config or {}),
            "tokenizer_config.json": {
                "bos_token": {"content": "<bos>"},
                "eos_token": "<eos>",
                "chat_template": TEMPLATE,
            },
        }
        save_file(weights if tensors is None else tensors, folder / "model.safetensors", {"format": "pt"})
        for name, content in (contents | (files or {})).items():
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return folder

    return write
