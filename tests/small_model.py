"""Small random models in Hugging Face's layout, so that a test needs none that is real."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers
from safetensors.numpy import save_file

from samebits.models.tokenizer import byte_alphabet

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 64, 4, 2, 16
# ChatML, and a date for those who ask.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if messages[0].content == 'date' %}{{ strftime_now('%Y-%m-%d') }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|im_start|>", "<|im_end|>")


def write_model(
    folder: Path,
    *,
    bos: bool = False,
    specials: Sequence[str] = SPECIALS,
    context: int = 512,
    layers: int = 2,
    inner: int = 96,
    **generation_config: object,
) -> str:
    """A random Llama with a chat template; its tokens are bytes and some special ones.

    Args:
        bos: texts and the template begin with ``<|im_start|>`` as BOS.
    """
    rng = np.random.default_rng(11)
    vocabulary = {character: i for i, character in enumerate(byte_alphabet())}
    size = len(vocabulary) + len(specials)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (size, HIDDEN), "model.norm": (HIDDEN,)}
    for i in range(layers):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.input_layernorm": (HIDDEN,),
            f"{layer}.self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            f"{layer}.post_attention_layernorm": (HIDDEN,),
            f"{layer}.mlp.gate_proj": (inner, HIDDEN),
            f"{layer}.mlp.up_proj": (inner, HIDDEN),
            f"{layer}.mlp.down_proj": (HIDDEN, inner),
        }
    scale = {2: 0.2, 1: 1.0}
    save_file(
        {f"{n}.weight": (rng.standard_normal(s) * scale[len(s)]).astype(np.float32) for n, s in shapes.items()},
        folder / "model.safetensors",
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": size,
        "hidden_size": HIDDEN,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(list(specials))
    settings = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
    if bos:
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", len(vocabulary))]
        )
        settings["bos_token"] = "<|im_start|>"
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if generation_config:
        (folder / "generation_config.json").write_text(json.dumps(generation_config))
    return str(folder)
