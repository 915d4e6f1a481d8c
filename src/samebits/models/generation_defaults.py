"""Sampling defaults that a model brings along in generation_config.json.

They are never applied unseen: each value carries where it came from, keys that are present and have no effect
    here are listed, and the digest is part of the fingerprint (docs/numerics.md, section 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from samebits.errors import ModelError
from samebits.models.fields import read_json_object
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
_INTEGERS: Final = ("top_k", "max_new_tokens")
# Keys that say nothing about sampling, or that the tokenizer takes up (eos_token_id).
_NOT_SAMPLING: Final = frozenset(
    {
        "_from_model_config",
        "transformers_version",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "do_sample",
    }
)


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
        ignored: keys of the file that could change sampling elsewhere and have no effect here, sorted.
        eos_ids: ids that end an output, as the file lists them; taken up by the tokenizer.
        digest: of the file's whole content; of an empty object where there is no file.
    """

    values: Mapping[str, Default] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    eos_ids: tuple[int, ...] = ()
    digest: str = digest_json({})


def read_generation_defaults(folder: Path) -> GenerationDefaults:
    """Read generation_config.json of a model folder; no defaults where there is no such file.

    Raises:
        ModelError: the file is damaged or a value is of the wrong type.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return GenerationDefaults()
    raw = read_json_object(path)
    values = {
        parameter: Default(_number(raw[key], key, path), f"{FILE_NAME}: {key}")
        for key, parameter in _PARAMETERS.items()
        if raw.get(key) is not None
    }
    if raw.get("do_sample") is False:  # greedy, whatever temperature stands beside it
        values["temperature"] = Default(0.0, f"{FILE_NAME}: do_sample")
    unused = raw.keys() - _PARAMETERS.keys() - _NOT_SAMPLING
    return GenerationDefaults(
        values=values,
        ignored=tuple(sorted(key for key in unused if raw[key] is not None)),
        eos_ids=token_ids(raw.get("eos_token_id"), "eos_token_id", path),
        digest=digest_json(raw),
    )


def token_ids(value: Any, key: str, path: Path) -> tuple[int, ...]:
    """The ids of a key that holds null, one id or a list of ids.

    Raises:
        ModelError: it holds something else.
    """
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise ModelError(f"{key} is {value!r}, not token ids", field=str(path), remedy="Correct the file")
    return tuple(ids)


def _number(value: Any, key: str, path: Path) -> int | float:
    wanted = int if key in _INTEGERS else int | float
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise ModelError(f"{key} is {value!r}, not a number", field=str(path), remedy="Correct the file")
    return value if key in _INTEGERS else float(value)
