"""The header reader against gguf's own, and against damage."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from samebits.errors import ModelError
from samebits.models.gguf_file import TENSOR_TYPES, read_gguf
from samebits.models.gguf_source import load_gguf


def comparable(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def assert_same_as_gguf(path: Path) -> None:
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert {k: comparable(v) for k, v in ours.metadata.items()} == fields
    assert {name: (tensor.shape, tensor.type_name, tensor.start) for name, tensor in ours.tensors.items()} == {
        t.name: (tuple(int(n) for n in reversed(t.shape)), t.tensor_type.name, t.data_offset) for t in theirs.tensors
    }


def test_tiny_file_reads_as_gguf_reads_it(write_gguf: Callable[..., Path]) -> None:
    changes = {
        "x.list": [1, 2, 3],
        "x.floats": [0.5, -1.0],
        "x.flags": [True, False],
        "x.text": "漢字",
        "x.empty": "",
    }
    assert_same_as_gguf(write_gguf(changes))


def test_smollm2_reads_as_gguf_reads_it(smollm2_path: Path) -> None:
    assert_same_as_gguf(smollm2_path)


def test_type_numbers_are_those_of_gguf() -> None:
    theirs = {t.value: t.name for t in gguf.GGMLQuantizationType}
    assert {n: name for n, name in TENSOR_TYPES.items() if n in theirs} == {
        n: name for n, name in theirs.items() if n in TENSOR_TYPES
    }


def test_every_truncation_is_a_model_error(write_gguf: Callable[..., Path]) -> None:
    path = write_gguf()
    whole = path.read_bytes()
    load_gguf(path)
    cut = path.with_name("cut.gguf")
    for length in [*range(64), *range(64, len(whole) - 1, 37), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        if length < len(whole) - 32:  # the writer pads the last tensor to the alignment
            with pytest.raises(ModelError):
                load_gguf(cut)


def test_damaged_headers_give_model_errors_and_no_large_memory(write_gguf: Callable[..., Path]) -> None:
    path = write_gguf()
    whole = path.read_bytes()
    header = min(t.start for t in read_gguf(path).tensors.values())
    damaged = path.with_name("damaged.gguf")
    rng = np.random.default_rng(5)
    refused = 0
    tracemalloc.start()
    for _ in range(600):
        data = bytearray(whole)
        for at in rng.integers(0, header, rng.integers(1, 4)):
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, data[at] ^ (1 << rng.integers(8))])
        damaged.write_bytes(data)
        try:
            load_gguf(damaged)
        except ModelError:
            refused += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused > 100
    assert peak < 16 * 2**20


@pytest.mark.parametrize("value", [[1, 2], [0.5, 1.5], [True, False], ["a", "b"]])
@pytest.mark.parametrize(
    "key",
    [
        "split.count",
        "general.alignment",
        "general.sampling.top_k",
        "llama.block_count",
        "llama.rope.scaling.type",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.chat_template",
    ],
)
def test_an_array_in_place_of_one_value_is_refused(write_gguf: Callable[..., Path], key: str, value: list[Any]) -> None:
    with pytest.raises(ModelError):
        load_gguf(write_gguf({key: value}))


def test_a_huge_number_of_layers_ends_at_the_first_missing_one(write_gguf: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match=r"model.layers.2.input_layernorm"):
        load_gguf(write_gguf({"llama.block_count": 2**31 - 1}))


@pytest.mark.parametrize("at", [8, 16])  # number of tensors, number of metadata entries
def test_counts_beyond_the_file_are_refused(write_gguf: Callable[..., Path], at: int) -> None:
    path = write_gguf()
    data = bytearray(path.read_bytes())
    data[at : at + 8] = (2**62).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(ModelError, match="truncated or damaged"):
        read_gguf(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(60), "version 1"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(60), "little-endian"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read_gguf(path)
