"""Logits against an independent float64 computation of the same weights, written from the Llama paper's equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.models import ModelSource

UNIT = 2.0**-24
LONGEST_CHAIN = 512 + 3  # a block of K, then the sums of at most three blocks of SmolLM2's 1,536
OPERATIONS_A_LAYER = 9  # two norms, four linears, rotation, attention, silu-mul


def logits64(source: ModelSource, ids: list[int], *, rotate: bool = True) -> np.ndarray:
    """All positions at once, dense, in float64, with none of samebits' kernels or orders."""
    c = source.config

    def weight(name: str) -> np.ndarray:
        tensor = source.tensor(f"{name}.weight")
        return tensor.rows(0, tensor.shape[0] if len(tensor.shape) == 2 else 1).astype(np.float64)

    def norm(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c.rms_norm_eps) * w.reshape(-1)

    positions = np.arange(len(ids))
    angles = np.outer(positions, c.rope_theta ** (-np.arange(0, c.head_dim, 2) / c.head_dim))
    turn = np.exp(1j * angles)[:, None] if rotate else 1.0

    def rotated(x: np.ndarray) -> np.ndarray:
        half = c.head_dim // 2
        z = (x[..., :half] + 1j * x[..., half:]) * turn
        return np.concatenate([z.real, z.imag], axis=-1)

    table = weight("model.embed_tokens")
    h = table[ids]
    causal = np.where(positions[:, None] >= positions, 0.0, -np.inf)
    group = c.num_heads // c.num_kv_heads
    for i in range(c.num_layers):
        layer = f"model.layers.{i}"
        a = norm(h, weight(f"{layer}.input_layernorm"))
        q, k, v = (
            (a @ weight(f"{layer}.self_attn.{n}_proj").T).reshape(len(ids), -1, c.head_dim) for n in ("q", "k", "v")
        )
        q, k = rotated(q), np.repeat(rotated(k), group, axis=1)
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(c.head_dim) + causal
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        mixed = np.einsum("hts,shd->thd", p, np.repeat(v, group, axis=1)).reshape(len(ids), -1)
        h = h + mixed @ weight(f"{layer}.self_attn.o_proj").T
        b = norm(h, weight(f"{layer}.post_attention_layernorm"))
        gate, up = b @ weight(f"{layer}.mlp.gate_proj").T, b @ weight(f"{layer}.mlp.up_proj").T
        h = h + (gate / (1 + np.exp(-gate)) * up) @ weight(f"{layer}.mlp.down_proj").T
    head = table if c.tie_word_embeddings else weight("lm_head")
    return norm(h, weight("model.norm")) @ head.T


def relative_error(actual: np.ndarray, exact: np.ndarray) -> float:
    return float((np.linalg.norm(actual - exact, axis=1) / np.linalg.norm(exact, axis=1)).max())


def bound(layers: int) -> float:
    """First order, norm-wise: each operation commits at most γ of its longest chain, in norm, and layers add up."""
    gamma = LONGEST_CHAIN * UNIT / (1 - LONGEST_CHAIN * UNIT)
    return (OPERATIONS_A_LAYER * layers + 2) * gamma


def test_fp32_logits_are_within_the_bound(smollm2: ModelSource) -> None:
    ids = smollm2.tokenizer.encode("The bridge was built in 1887, and it still carries 3,000 cars a day.")
    with LLM("smollm2", "fp32") as llm:
        actual = llm.logits(ids).astype(np.float64)
    error = relative_error(actual, logits64(smollm2, ids))
    assert error <= bound(smollm2.config.num_layers)
    wrong = relative_error(actual, logits64(smollm2, ids, rotate=False))
    assert wrong > bound(smollm2.config.num_layers), "the bound cannot tell a model without rotation"


@pytest.mark.peer
def test_greedy_text_is_that_of_transformers(smollm2_path: Any) -> None:
    torch = pytest.importorskip("torch", reason="install the extra 'peer'")
    transformers = pytest.importorskip("transformers", reason="install the extra 'peer'")
    prompts = [
        "The capital of France is",
        "Once upon a time, in a village by the sea,",
        "def fibonacci(n):\n",
        "Water boils at 100 degrees Celsius because",
    ]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32
    )
    with LLM("smollm2", "fp32") as llm, torch.no_grad():
        for prompt in prompts:
            ids = llm.encode_prompt(prompt)
            [ours] = llm.generate(ids, SamplingParams(max_tokens=48))
            out = model.generate(torch.tensor([ids]), max_new_tokens=len(ours.token_ids), do_sample=False)
            assert tuple(out[0, len(ids) :].tolist()) == ours.token_ids, prompt
