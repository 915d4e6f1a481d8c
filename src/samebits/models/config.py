"""The shape of a Llama model, from Hugging Face's config.json or GGUF metadata.

Nothing is assumed in silence: a setting that would change the result and is not implemented is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from samebits.errors import ModelError, shown
from samebits.models.fields import Fields

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
# transformers' default where a Mistral configuration does not mention a window.
_MISTRAL_WINDOW = 4096


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are scaled (docs/numerics.md, section 6).

    Attributes:
        kind: ``linear`` uses factor; ``llama3`` uses factor, low, high and original_context; ``factors``
            divides frequency i by factors[i].
    """

    kind: Literal["linear", "llama3", "factors"]
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original_context: int = 0
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class ModelConfig:
    """Shape and constants of a model.

    Attributes:
        context_length: greatest number of positions that can be served exactly.
        trained_context: positions the model was made for. Greater than context_length where attention is
            limited to a sliding window: up to the window, windowed and full attention are the same; beyond it
            samebits refuses.
        sliding_window: the window, or None.
        rms_norm_eps: as the file gives it; rounded to binary32 in use.
        rope_scaling: None for plain rotary embedding.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    trained_context: int
    sliding_window: int | None
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tie_word_embeddings: bool

    @property
    def context_limit_reason(self) -> str | None:
        """Why context_length is below trained_context, in words for the user; None where it is not."""
        if self.context_length == self.trained_context:
            return None
        return (
            f"the context is limited to {self.context_length} of {self.trained_context} positions: the "
            f"model's attention has a sliding window of {self.sliding_window}, and only what fits is served"
        )


def config_from_hf(raw: Mapping[str, Any], where: str) -> ModelConfig:
    """Build from the content of config.json.

    Args:
        where: the file, for error messages.

    Raises:
        ModelError: a key is missing, of the wrong type or out of range, or asks for what is not implemented.
    """
    fields = Fields(raw, where)
    architecture = _hf_architecture(raw, where)
    fields.refuse_unless("hidden_act", ("silu",), default="silu")
    for key in ("attention_bias", "mlp_bias"):
        fields.refuse_unless(key, (False,), default=False)
    fields.refuse_unless("quantization_config", (None,), default=None)
    fields.refuse_unless("partial_rotary_factor", (1,), default=1)
    mistral = architecture == "MistralForCausalLM"
    heads = fields.positive("num_attention_heads")
    hidden = fields.positive("hidden_size")
    # transformers 5 moved rope_theta and rope_scaling into one object.
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        fields.fail("rope_scaling", "is not an object")
    rope_fields = Fields(rope, where, prefix="rope_scaling.")
    theta_fields = rope_fields if "rope_theta" in rope else fields
    return _checked(
        where,
        architecture=architecture,
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.positive("intermediate_size"),
        num_layers=fields.positive("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=fields.positive("num_key_value_heads", default=8 if mistral else heads),
        head_dim=fields.positive("head_dim", default=hidden // heads),
        trained_context=fields.positive("max_position_embeddings"),
        sliding_window=fields.optional_positive("sliding_window", default=_MISTRAL_WINDOW) if mistral else None,
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope_theta=theta_fields.number("rope_theta", default=10000.0),
        rope_scaling=_hf_scaling(rope_fields),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", default=False),
    )


def config_from_gguf(
    metadata: Mapping[str, Any],
    *,
    vocab_size: int,
    tied: bool,
    rope_factors: tuple[float, ...] | None,
    where: str,
) -> ModelConfig:
    """Build from GGUF metadata, and from what GGUF says by its tensors.

    Args:
        vocab_size: rows of the embedding.
        tied: the file has no output matrix of its own.
        rope_factors: values of the tensor ``rope_freqs.weight``, or None.
        where: the file, for error messages.

    Raises:
        ModelError: as config_from_hf.
    """
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        _refuse_architecture(architecture, "llama", where)
    llama = {key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")}
    fields = Fields(llama, where, prefix="llama.")
    fields.refuse_unless("expert_count", (0,), default=0)
    for key in ("attention.scale", "logit_scale", "embedding_scale", "residual_scale"):
        fields.refuse_unless(key, (None, 0.0), default=None)
    heads = fields.positive("attention.head_count")
    hidden = fields.positive("embedding_length")
    head_dim = fields.positive("attention.key_length", default=hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        fields.refuse_unless(key, (head_dim,), default=head_dim)
    return _checked(
        where,
        architecture="llama",
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=fields.positive("feed_forward_length"),
        num_layers=fields.positive("block_count"),
        num_heads=heads,
        num_kv_heads=fields.positive("attention.head_count_kv", default=heads),
        head_dim=head_dim,
        trained_context=fields.positive("context_length"),
        sliding_window=fields.optional_positive("attention.sliding_window", default=None),
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope_theta=fields.number("rope.freq_base", default=10000.0),
        rope_scaling=_gguf_scaling(fields, rope_factors),
        tie_word_embeddings=tied,
    )


def _hf_architecture(raw: Mapping[str, Any], where: str) -> str:
    names = raw.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else names
    if name not in ARCHITECTURES:
        _refuse_architecture(name, " or ".join(ARCHITECTURES), where)
    return str(name)


def _refuse_architecture(name: object, supported: str, where: str) -> NoReturn:
    raise ModelError(
        f"has the architecture {shown(name)}, which is not supported",
        field=where,
        remedy=f"Use a model of {supported}.",
    )


def _hf_scaling(rope: Fields) -> RopeScaling | None:
    kind = rope.raw.get("rope_type", rope.raw.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", factor=rope.number("factor"))
    if kind != "llama3":
        rope.fail("rope_type", f"is {shown(kind)}; none, linear and llama3 are supported")
    return RopeScaling(
        "llama3",
        factor=rope.number("factor"),
        low=rope.number("low_freq_factor"),
        high=rope.number("high_freq_factor"),
        original_context=rope.positive("original_max_position_embeddings"),
    )


def _gguf_scaling(fields: Fields, factors: tuple[float, ...] | None) -> RopeScaling | None:
    kind = fields.raw.get("rope.scaling.type", "none")
    old_factor = fields.number("rope.scale_linear", default=1.0)  # how files said it before rope.scaling.*
    factor = fields.number("rope.scaling.factor", default=old_factor)
    if kind not in ("none", "linear"):
        fields.fail("rope.scaling.type", f"is {shown(kind)}; none, linear and a rope_freqs tensor are supported")
    scaled = kind == "linear" or old_factor != 1.0
    if factors is None:
        return RopeScaling("linear", factor=factor) if scaled else None
    if scaled:
        fields.fail("rope.scaling.type", "is linear beside a rope_freqs tensor; one of them is supported")
    return RopeScaling("factors", factors=factors)


def _checked(where: str, *, trained_context: int, sliding_window: int | None, **values: Any) -> ModelConfig:
    config = ModelConfig(
        context_length=min(trained_context, sliding_window or trained_context),
        trained_context=trained_context,
        sliding_window=sliding_window,
        **values,
    )
    problems = {
        "num_heads is not a multiple of num_kv_heads": config.num_heads % config.num_kv_heads != 0,
        "head_dim is odd": config.head_dim % 2 != 0,
        "rms_norm_eps is not in [0, 1)": not 0 <= config.rms_norm_eps < 1,
        "rope_theta is not above 0": not config.rope_theta > 0,
        "context_length is above 2^20, the range of exact rotary angles": config.context_length > 2**20,
    }
    if (scaling := config.rope_scaling) is not None:
        half = config.head_dim // 2
        problems |= {
            "a factor of rope_scaling is not a number above 0": not all(
                math.isfinite(x) and x > 0 for x in (scaling.factor, scaling.low, scaling.high, *scaling.factors)
            ),
            "high_freq_factor is not above low_freq_factor": scaling.high <= scaling.low,
            f"the tensor rope_freqs does not have {half} values": scaling.kind == "factors"
            and len(scaling.factors) != half,
        }
    for problem, found in problems.items():
        if found:
            raise ModelError(problem, field=where, remedy="Use an undamaged model of a supported shape.")
    return config
