"""The Llama decoder (docs/numerics.md 3.6): from a batch of token ids to logits.

Shape letters: T rows of the batch, H heads, G kv heads, D head dimension, C hidden size, F inner size, V vocabulary,
R rows of logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from samebits import kernels
from samebits.models.batch import Batch
from samebits.models.matrix import Matrix, PackedWeights, VendorWeights
from samebits.models.rope import inverse_frequencies
from samebits.models.source import ModelSource
from samebits.numerics.rope import rope_tables

Floats = npt.NDArray[np.float32]

# Rows of logits computed at a time: 64 rows of a 50,000-token vocabulary are 13 MB.
LOGIT_ROWS = 64


@dataclass(frozen=True)
class Layer:
    """Weights of one layer. ``qkv`` (H·D + 2·G·D, C) and ``gate_up`` (2·F, C) are stacked."""

    attention_norm: Floats
    qkv: Matrix
    output: Matrix
    mlp_norm: Floats
    gate_up: Matrix
    down: Matrix


class Decoder:
    """A model in memory, in one profile.

    Args:
        source: where weights come from.
        ctx: threads and instruction set.
        profile: ``fp32``, ``bf16``, ``int8``, or ``vendor``: numpy's BLAS in place of the contract's linear, which
            promises nothing and exists to be compared with.
    """

    def __init__(self, source: ModelSource, ctx: kernels.Context, profile: str) -> None:
        self.config = source.config
        self.profile = profile
        self._ctx = ctx
        make = VendorWeights if profile == "vendor" else PackedWeights

        def matrix(*names: str) -> Matrix:
            return make(ctx, profile, [source.tensor(f"{name}.weight") for name in names])

        def vector(name: str) -> Floats:
            return source.tensor(f"{name}.weight").rows(0, 1).reshape(-1)

        self._embedding = matrix("model.embed_tokens")
        self._layers = []
        for i in range(self.config.num_layers):
            attention, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
            self._layers.append(
                Layer(
                    attention_norm=vector(f"model.layers.{i}.input_layernorm"),
                    qkv=matrix(f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"),
                    output=matrix(f"{attention}.o_proj"),
                    mlp_norm=vector(f"model.layers.{i}.post_attention_layernorm"),
                    gate_up=matrix(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
                    down=matrix(f"{mlp}.down_proj"),
                )
            )
        self._norm = vector("model.norm")
        self._head = self._embedding if self.config.tie_word_embeddings else matrix("lm_head")
        self._rope = rope_tables(inverse_frequencies(self.config), self.config.context_length)

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        layers = sum(m.nbytes for x in self._layers for m in (x.qkv, x.output, x.gate_up, x.down))
        return layers + self._embedding.nbytes + (self._head.nbytes if self._head is not self._embedding else 0)

    def new_cache(self, pages: int, page_size: int) -> kernels.KvCache:
        """A paged cache of this model's shape; what its pages hold before they are stored to is not defined."""
        c = self.config
        profile = "bf16" if self.profile == "vendor" else self.profile
        return kernels.KvCache(profile, c.num_layers, pages, page_size, c.num_kv_heads, c.head_dim)

    def cache_bytes(self, page_size: int) -> int:
        """Bytes of one page over all layers."""
        return self.new_cache(1, page_size).nbytes

    def forward(self, batch: Batch, cache: kernels.KvCache) -> Floats:
        """Logits (R, V) float32 of the wanted rows; keys and values of all rows are stored in ``cache``."""
        ctx, c = self._ctx, self.config
        rows = len(batch.token_ids)
        queries, pairs = c.num_heads * c.head_dim, (c.num_heads + 2 * c.num_kv_heads) * c.head_dim
        hidden = np.empty((rows, c.hidden_size), np.float32)
        normed = np.empty_like(hidden)
        qkv = np.empty((rows, pairs), np.float32)
        q = np.empty((rows, queries), np.float32)
        attended = np.empty_like(q)
        gate_up = np.empty((rows, 2 * c.intermediate_size), np.float32)
        inner = np.empty((rows, c.intermediate_size), np.float32)

        self._embedding.embed(ctx, batch.token_ids, hidden)
        for i, layer in enumerate(self._layers):
            kernels.rmsnorm(ctx, hidden, layer.attention_norm, c.rms_norm_eps, normed)
            layer.qkv.linear(ctx, normed, qkv)
            kernels.rope_store(ctx, qkv, batch.positions, batch.slots, self._rope.cos, self._rope.sin, cache, i, q)
            kernels.attention(ctx, q, cache, i, batch.positions, batch.seq_starts, batch.block_tables, attended)
            layer.output.linear(ctx, attended, hidden, residual=True)
            kernels.rmsnorm(ctx, hidden, layer.mlp_norm, c.rms_norm_eps, normed)
            layer.gate_up.linear(ctx, normed, gate_up)
            kernels.silu_mul(ctx, gate_up, inner)
            layer.down.linear(ctx, inner, hidden, residual=True)

        wanted = hidden[batch.logit_rows]
        kernels.rmsnorm(ctx, wanted, self._norm, c.rms_norm_eps, wanted)
        logits = np.empty((len(wanted), c.vocab_size), np.float32)
        for start in range(0, len(wanted), LOGIT_ROWS):
            stop = start + LOGIT_ROWS
            self._head.linear(ctx, wanted[start:stop], logits[start:stop])
        return logits
