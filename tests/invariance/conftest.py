"""A model and ways to ask it, shared by the invariance tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

from samebits import LLM, SamplingParams
from samebits.errors import ModelError
from samebits.models.load import find_smollm2
from samebits.models.tokenizer import byte_alphabet
from samebits.numerics import assert_bitwise_equal

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 160, 3, 4, 2, 16
NEW_TOKENS = 12


def write_small_model(folder: Path) -> None:
    """A random Llama in Hugging Face's layout: bytes are its tokens."""
    rng = np.random.default_rng(4)
    vocabulary = {character: i for i, character in enumerate(byte_alphabet())}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (len(vocabulary), HIDDEN), "model.norm": (HIDDEN,)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.input_layernorm": (HIDDEN,),
            f"{layer}.self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            f"{layer}.post_attention_layernorm": (HIDDEN,),
            f"{layer}.mlp.gate_proj": (INNER, HIDDEN),
            f"{layer}.mlp.up_proj": (INNER, HIDDEN),
            f"{layer}.mlp.down_proj": (HIDDEN, INNER),
        }
    scale = {2: 0.2, 1: 1.0}
    save_file(
        {f"{n}.weight": (rng.standard_normal(s) * scale[len(s)]).astype(np.float32) for n, s in shapes.items()},
        folder / "model.safetensors",
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(vocabulary),
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """For tests that load a model many times or take a slow path."""
    folder = tmp_path_factory.mktemp("small")
    write_small_model(folder)
    return str(folder)


@pytest.fixture(scope="session")
def real_model(small_model: str) -> str:
    """SmolLM2 where its package is installed, else the small random model."""
    try:
        find_smollm2()
    except ModelError:
        return small_model
    return "smollm2"


@dataclass(frozen=True)
class Answer:
    """What must not change: ids, and every bit of every log-probability."""

    token_ids: tuple[int, ...]
    logprobs: np.ndarray

    def require_same(self, other: Answer, name: str) -> None:
        assert self.token_ids == other.token_ids, f"{name}: {self.token_ids} against {other.token_ids}"
        assert_bitwise_equal(other.logprobs, self.logprobs, name)


Ask = Callable[..., list[Answer]]


@pytest.fixture(scope="session")
def ask() -> Ask:
    """Asks a model for greedy answers with log-probabilities (or with the parameters given)."""

    def answers(llm: LLM, prompts: Sequence[Sequence[int]], **parameters: object) -> list[Answer]:
        values = {"max_tokens": NEW_TOKENS, "ignore_eos": True, "logprobs": 0} | parameters
        params = SamplingParams.from_mapping(values)
        completions = llm.generate([list(p) for p in prompts], params)
        assert all(c.error is None for c in completions)
        return [Answer(c.token_ids, c.logprobs) for c in completions if c.logprobs is not None]

    return answers


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """64 prompts of 1 to 300 tokens; ids that both models have."""
    rng = np.random.default_rng(6)
    lengths = [1, 2, 15, 16, 17, 31, 33, 64, 100, 255, 257, 300]
    return [rng.integers(0, 256, lengths[i % len(lengths)] + i // len(lengths)).tolist() for i in range(64)]


@pytest.fixture(scope="session")
def alone(real_model: str, prompts: list[list[int]], ask: Ask) -> Iterator[Callable[[str], list[Answer]]]:
    """The answers of a profile, one request at a time, nothing reused: what the others are compared with."""
    known: dict[str, list[Answer]] = {}

    def get(profile: str) -> list[Answer]:
        if profile not in known:
            with LLM(real_model, profile, max_batch=1, prefix_cache=False) as llm:
                known[profile] = ask(llm, prompts[:24])
                assert set(llm.engine.stats.batch_sizes) == {1}
        return known[profile]

    yield get
    known.clear()
