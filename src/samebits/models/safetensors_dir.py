"""A model from a Hugging Face folder: config.json, safetensors in one file or in shards, tokenizer.json.

The safetensors library gives numpy no bfloat16, so the header (a length, then JSON) is read here and weights stay
mapped.
Format: the safetensors README, section "Format".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from samebits.errors import ModelError, shown
from samebits.models.config import ModelConfig, config_from_hf
from samebits.models.fields import read_json_object
from samebits.models.generation_defaults import FILE_NAME, GenerationDefaults, read_generation_defaults
from samebits.models.hf_tokenizer import tokenizer_from_folder
from samebits.models.source import WEIGHT_FORMATS, Bytes, ModelSource, RawTensor, check_tensors
from samebits.models.tokenizer import Tokenizer

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_MAX_HEADER: Final = 100_000_000  # bytes, the format's own limit
# Buffers that old checkpoints saved; they follow from the configuration.
_DERIVED: Final = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def load_folder(folder: Path) -> ModelSource:
    """Open a model folder; weights stay mapped.

    ``weights_digest`` covers config.json, whose constants act like weights, then the safetensors files by
    name.

    Raises:
        ModelError: a file is missing or damaged, or the model is not supported.
    """
    config_path = folder / "config.json"
    raw_config = read_json_object(config_path)
    config = config_from_hf(raw_config, str(config_path))
    files = _weight_files(folder)
    tensors: dict[str, RawTensor] = {}
    for path in files:
        for name, tensor in read_safetensors(path).items():
            if name in tensors:
                _fail(path, f"holds tensor {name}, which another shard holds too")
            tensors[name] = tensor
    tensors = {name: tensor for name, tensor in tensors.items() if not _DERIVED.fullmatch(name)}
    if config.tie_word_embeddings:
        _drop_tied_head(tensors, folder)
    check_tensors(config, tensors, folder)
    defaults = read_generation_defaults(folder)
    tokenizer = tokenizer_from_folder(folder, raw_config, defaults.eos_ids)
    _check_vocabulary(config, tokenizer, defaults, folder)
    return ModelSource(
        config=config,
        tokenizer=tokenizer,
        generation_defaults=defaults,
        files=(config_path, *files),
        tensors=tensors,
    )


def read_safetensors(path: Path) -> dict[str, RawTensor]:
    """The tensors of one file, mapped.

    Raises:
        ModelError: the file is missing or damaged, or has a type other than F32, F16 and BF16.
    """
    try:
        data = np.memmap(path, np.uint8, mode="r")
    except OSError as error:
        _fail(path, f"cannot be read ({error.strerror})")
    except ValueError:  # numpy refuses to map an empty file
        _fail(path, "is empty")
    length = int.from_bytes(data[:8].tobytes(), "little")
    start = 8 + length
    if len(data) < 8 or start > len(data) or length > _MAX_HEADER:
        _fail(path, f"is truncated or damaged: a header of {length} bytes announced, {len(data)} in all")
    try:
        header = json.loads(data[8:start].tobytes())
    except (ValueError, RecursionError):
        _fail(path, "is damaged: its header is not JSON")
    if not isinstance(header, dict):
        _fail(path, "is damaged: its header is not a JSON object")
    header.pop("__metadata__", None)
    return {name: _tensor(path, name, entry, data[start:]) for name, entry in header.items()}


def _tensor(path: Path, name: str, entry: Any, data: Bytes) -> RawTensor:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if not (
            isinstance(begin, bool) or isinstance(end, bool)
        ):
            pass
        case _:
            _fail(path, f"is damaged: tensor {name} has no dtype, shape and data_offsets")
    if dtype not in ("F32", "F16", "BF16"):
        _fail(path, f"tensor {name} has the type {dtype}, which is not supported", "Use F32, F16 or BF16.")
    if len(shape) not in (1, 2) or not all(type(n) is int and n > 0 for n in shape):
        _fail(path, f"tensor {name} of shape {shape} is not a vector or matrix")
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * WEIGHT_FORMATS[dtype].nbytes:
        _fail(path, f"is truncated or damaged: tensor {name} is not at bytes {begin} to {end} of {len(data)}")
    return RawTensor(tuple(shape), dtype, data[begin:end])


def _weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files, by name."""
    index = folder / _INDEX
    if not index.exists():
        return (folder / _SINGLE,)
    shards = read_json_object(index).get("weight_map")
    if not isinstance(shards, Mapping) or not all(isinstance(name, str) for name in shards.values()):
        _fail(index, "has no weight_map of file names")
    names = sorted(set(shards.values()))
    if any(Path(name).name != name for name in names):
        _fail(index, "names a file outside its folder")
    return tuple(folder / name for name in names)


def _drop_tied_head(tensors: dict[str, RawTensor], folder: Path) -> None:
    """Some tied checkpoints save the embedding a second time as lm_head: accepted where it is the same."""
    head = tensors.pop("lm_head.weight", None)
    embedding = tensors.get("model.embed_tokens.weight")
    if head is not None and embedding is not None and not np.array_equal(head.data, embedding.data):
        _fail(folder, "tensor lm_head.weight differs from the embedding, which config.json ties to it")


def _check_vocabulary(config: ModelConfig, tokenizer: Tokenizer, defaults: GenerationDefaults, folder: Path) -> None:
    tokens, rows = tokenizer.vocab_size, config.vocab_size
    if tokens > rows:
        _fail(folder, f"tokenizer.json has {tokens} tokens, the embedding only {rows} rows")
    # Ids of tokens are below that; the others stand as numbers in a file.
    for file, key, ids in (
        (FILE_NAME, "eos_token_id", defaults.eos_ids),
        ("config.json", "eos_token_id", tokenizer.eos_ids),
        ("config.json", "bos_token_id", () if tokenizer.bos_id is None else (tokenizer.bos_id,)),
    ):
        for token in ids:
            if token >= rows:
                _fail(folder / file, f"{key} is {shown(token)}, and ids go to {rows - 1}", "Correct the file.")


def _fail(path: Path, message: str, remedy: str = "Download the whole model folder again.") -> NoReturn:
    raise ModelError(message, field=str(path), remedy=remedy)
