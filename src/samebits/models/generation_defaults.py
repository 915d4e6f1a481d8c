"""Sampling defaults that a model brings along, in generation_config.json or in the metadata of a GGUF file.

None is applied unseen: each value carries where it came from, keys that would change an answer elsewhere and have no
effect here are listed, and the digest is part of the fingerprint (docs/numerics.md, section 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from samebits.errors import InputError, ModelError, shown
from samebits.models.fields import finite, read_json_object
from samebits.numerics import digest_json

FILE_NAME: Final = "generation_config.json"
# Key of the file -> sampling parameter of samebits.
_PARAMETERS: Final = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}
# Keys that cannot change an answer, or that are taken up elsewhere (eos_token_id: the tokenizer).
_NOT_SAMPLING: Final = frozenset(
    {
        "_from_model_config",
        "assistant_confidence_threshold",
        "bos_token_id",
        "cache_config",
        "cache_implementation",
        "compile_config",
        "decoder_start_token_id",
        "disable_compile",
        "do_sample",
        "eos_token_id",
        "is_assistant",
        "low_memory",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "output_attentions",
        "output_hidden_states",
        "output_logits",
        "output_scores",
        "pad_token_id",
        "prefill_chunk_size",
        "return_dict_in_generate",
        "transformers_version",
        "trust_remote_code",
        "use_cache",
    }
)
# Values with which a key changes nothing, which is also what happens here.
_NEUTRAL: Final[Mapping[str, object]] = {
    "diversity_penalty": 0,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "guidance_scale": 1,
    "length_penalty": 1,
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "penalty_alpha": 0,
    "remove_invalid_values": False,
    "renormalize_logits": False,
    "token_healing": False,
    "typical_p": 1,
}

_GGUF_PREFIX: Final = "general.sampling."
_GGUF_PARAMETERS: Final = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
# The penalty covers prompt and output here, which llama.cpp writes as a window of -1. tau, eta and the threshold only
# say how a sampler works that another key turns on.
_GGUF_NEUTRAL: Final[Mapping[str, object]] = {"penalty_last_n": -1, "mirostat": 0, "xtc_probability": 0}
_GGUF_DEPENDENT: Final = frozenset({"mirostat_tau", "mirostat_eta", "xtc_threshold"})


@dataclass(frozen=True)
class Default:
    """A default value, and the file and key it came from."""

    value: int | float
    origin: str


@dataclass(frozen=True)
class GenerationDefaults:
    """Defaults of a model.

    Attributes:
        values: by sampling parameter of samebits. An explicit value of a request takes precedence.
        ignored: keys that change answers elsewhere and have no effect here, sorted.
        eos_ids: ids that end an output, as generation_config.json lists them; taken up by the tokenizer.
        digest: of the whole content of generation_config.json, or of the keys of a GGUF file that concern sampling; of
            an empty object where there are none.
    """

    values: Mapping[str, Default] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    eos_ids: tuple[int, ...] = ()
    digest: str = digest_json({})


def read_generation_defaults(folder: Path) -> GenerationDefaults:
    """Read generation_config.json of a model folder; no defaults where there is no such file.

    A key that is null counts as absent. ``do_sample`` false is temperature 0, whatever stands beside it; true without a
    temperature is temperature 1. Where it is absent, a temperature in the file counts.

    Raises:
        ModelError: the file is damaged or a value is of the wrong type.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return GenerationDefaults()
    raw = read_json_object(path)
    given = {key: value for key, value in raw.items() if value is not None}
    values = _defaults(given, _PARAMETERS, FILE_NAME, "", str(path))
    sampled = given.get("do_sample")
    if not isinstance(sampled, bool | None):
        raise ModelError(
            f"do_sample is {shown(sampled)}, not true or false", field=str(path), remedy="Correct the file."
        )
    if sampled is False or (sampled and "temperature" not in values):
        values["temperature"] = Default(float(sampled), f"{FILE_NAME}: do_sample")
    return GenerationDefaults(
        values=values,
        ignored=_without_effect(given.keys() - _PARAMETERS.keys() - _NOT_SAMPLING, given, _NEUTRAL),
        eos_ids=token_ids(raw.get("eos_token_id"), "eos_token_id", path),
        digest=_digest(raw, str(path)),
    )


def defaults_from_gguf(metadata: Mapping[str, Any], where: str) -> GenerationDefaults:
    """The keys ``general.sampling.*`` of a GGUF file.

    Raises:
        ModelError: a value is of the wrong type.
    """
    given = {key.removeprefix(_GGUF_PREFIX): value for key, value in metadata.items() if key.startswith(_GGUF_PREFIX)}
    if not given:
        return GenerationDefaults()
    ignored = _without_effect(given.keys() - _GGUF_PARAMETERS.keys() - _GGUF_DEPENDENT, given, _GGUF_NEUTRAL)
    return GenerationDefaults(
        values=_defaults(given, _GGUF_PARAMETERS, "GGUF", _GGUF_PREFIX, where),
        ignored=tuple(_GGUF_PREFIX + key for key in ignored),
        digest=_digest(given, where),
    )


def token_ids(value: Any, key: str, path: Path) -> tuple[int, ...]:
    """The ids of a key that holds null, one id or a list of ids.

    Raises:
        ModelError: it holds something else.
    """
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise ModelError(f"{key} is {shown(value)}, not token ids", field=str(path), remedy="Correct the file.")
    return tuple(ids)


def _defaults(
    given: Mapping[str, Any], parameters: Mapping[str, str], file: str, prefix: str, where: str
) -> dict[str, Default]:
    return {
        parameter: Default(_number(given[key], prefix + key, parameter, where), f"{file}: {prefix}{key}")
        for key, parameter in parameters.items()
        if key in given
    }


def _number(value: Any, key: str, parameter: str, where: str) -> int | float:
    integer = parameter in ("top_k", "max_tokens")
    number = finite(value)
    if number is None or (integer and not isinstance(value, int)):
        raise ModelError(f"{key} is {shown(value)}, not a number", field=where, remedy="Correct the file.")
    if parameter == "top_k":
        return max(0, int(value))  # both formats know a negative one as "off"
    return int(value) if integer else number


def _without_effect(keys: set[str], given: Mapping[str, Any], neutral: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(sorted(key for key in keys if key not in neutral or given[key] != neutral[key]))


def _digest(content: Mapping[str, Any], where: str) -> str:
    try:
        return digest_json(content)
    except InputError as error:  # Python's reader takes NaN and lone surrogates, the canonical form does not
        raise ModelError(f"has no canonical form ({error})", field=where, remedy="Correct the file.") from error
