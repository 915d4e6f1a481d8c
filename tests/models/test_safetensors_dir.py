"""Hugging Face folders: weights, shards, tokenizer, defaults, refusals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from samebits import LLM
from samebits.errors import ModelError
from samebits.models import load_source
from samebits.models.safetensors_dir import read_safetensors
from samebits.numerics import assert_bitwise_equal

Weights = dict[str, np.ndarray]
Write = Callable[..., Path]
GENERATION = {
    "do_sample": True,
    "temperature": 1,
    "top_k": 64,
    "top_p": 0.95,
    "repetition_penalty": 1.05,
    "typical_p": 0.9,
    "eos_token_id": [256, 257],
}


def test_every_tensor_comes_back(write_folder: Write, weights: Weights) -> None:
    source = load_source(write_folder())
    assert source.names() == tuple(sorted(weights))
    for name, weight in weights.items():
        rows = source.tensor(name).rows(0, weight.shape[0] if weight.ndim == 2 else 1)
        assert_bitwise_equal(rows.reshape(weight.shape), weight)


def test_both_formats_agree(write_folder: Write, write_gguf: Write) -> None:
    folder, file = load_source(write_folder()), load_source(write_gguf())
    assert folder.config.rope_theta == file.config.rope_theta
    for text in ("hello 1234", "é<eos>", ""):
        assert folder.tokenizer.encode(text) == file.tokenizer.encode(text)
    messages = [{"role": "user", "content": "hello"}]
    assert folder.tokenizer.apply_chat_template(messages) == file.tokenizer.apply_chat_template(messages)


def test_truncation_and_padding_of_tokenizer_json_are_off(write_folder: Write) -> None:
    assert len(load_source(write_folder()).tokenizer.encode("abcdefgh")) == 9


def test_half_and_bfloat16(tmp_path: Path) -> None:
    halves = np.array([[1.5, -2.0]], np.float16)
    header = json.dumps(
        {
            "a": {"dtype": "F16", "shape": [1, 2], "data_offsets": [0, 4]},
            "b": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 8]},
        }
    ).encode()
    path = tmp_path / "x.safetensors"
    bf16 = (np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    path.write_bytes(len(header).to_bytes(8, "little") + header + halves.tobytes() + bf16.tobytes())
    for tensor in read_safetensors(path).values():
        assert_bitwise_equal(tensor.rows(0, 1), np.array([[1.5, -2.0]], np.float32))


def test_shards_and_digest(write_folder: Write, weights: Weights) -> None:
    folder = write_folder()
    names = sorted(weights)
    for part, chosen in (("b", names[:9]), ("a", names[9:])):
        save_file({n: weights[n] for n in chosen}, folder / f"{part}.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {n: "b.safetensors" if n in names[:9] else "a.safetensors" for n in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    source = load_source(folder)
    assert source.names() == tuple(names)
    lines = "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("config.json", "a.safetensors", "b.safetensors")
    )
    assert source.weights_digest == "sha256:" + hashlib.sha256(lines.encode()).hexdigest()
    (folder / "a.safetensors").unlink()
    with pytest.raises(ModelError, match=r"a.safetensors: cannot be read"):
        load_source(folder)
    index = {"weight_map": {"x": "../a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="outside its folder"):
        load_source(folder)


def test_missing_unknown_and_misshapen_tensors_are_named(write_folder: Write, weights: Weights) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(ModelError, match=rf"{name} .* is missing"):
        load_source(write_folder(tensors={n: w for n, w in weights.items() if n != name}))
    bias = {"model.layers.0.self_attn.q_proj.bias": np.zeros(16, np.float32)}
    with pytest.raises(ModelError, match=r"q_proj.bias is not part"):
        load_source(write_folder(tensors=weights | bias))
    with pytest.raises(ModelError, match=rf"{name} has shape"):
        load_source(write_folder(tensors=weights | {name: weights[name][:-1].copy()}))
    with pytest.raises(ModelError, match=r"norm.weight has the type I32"):
        load_source(write_folder(tensors=weights | {"model.norm.weight": np.zeros(16, np.int32)}))


def test_a_tied_head_must_be_the_embedding(write_folder: Write, weights: Weights) -> None:
    embedding = weights["model.embed_tokens.weight"]
    source = load_source(write_folder(tensors=weights | {"lm_head.weight": embedding.copy()}))
    assert "lm_head.weight" not in source.names()
    with pytest.raises(ModelError, match=r"lm_head.weight differs"):
        load_source(write_folder(tensors=weights | {"lm_head.weight": embedding + 1}))


def test_every_truncation_is_a_model_error(write_folder: Write) -> None:
    path = write_folder() / "model.safetensors"
    whole = path.read_bytes()
    cut = path.with_name("cut.safetensors")
    for length in [*range(40), *range(40, len(whole), 101), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            read_safetensors(cut)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, "Qwen2ForCausalLM.*LlamaForCausalLM or Mistral"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_scaling.rope_type is 'yarn'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_size": "16"}, "hidden_size is '16'"),
        ({"rms_norm_eps": None}, "rms_norm_eps is missing"),
        ({"num_key_value_heads": 3}, "not a multiple"),
    ],
)
def test_what_is_not_supported_is_named(write_folder: Write, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_source(write_folder(config))


def test_a_sliding_window_limits_the_context_and_says_so(write_folder: Write) -> None:
    config = load_source(write_folder({"architectures": ["MistralForCausalLM"], "sliding_window": 100})).config
    assert (config.context_length, config.trained_context, config.sliding_window) == (100, 128, 100)
    assert "sliding window of 100" in (config.context_limit_reason or "")
    with pytest.warns(UserWarning, match=r"limited to 100 of 128 positions: .*sliding window of 100"):
        LLM(str(write_folder({"architectures": ["MistralForCausalLM"], "sliding_window": 100}))).close()
    whole = {"architectures": ["MistralForCausalLM"], "sliding_window": None}
    assert load_source(write_folder(whole)).config.context_limit_reason is None


def test_defaults_and_where_they_come_from(write_folder: Write, tiny: SimpleNamespace) -> None:
    source = load_source(write_folder(files={"generation_config.json": GENERATION}))
    defaults = source.generation_defaults
    assert {key: default.value for key, default in defaults.values.items()} == {
        "temperature": 1.0,
        "top_k": 64,
        "top_p": 0.95,
        "repetition_penalty": 1.05,
    }
    assert defaults.values["top_k"].origin == "generation_config.json: top_k"
    assert defaults.ignored == ("typical_p",)
    assert source.tokenizer.eos_ids == tuple(sorted({256, 257, tiny.eos}))
    edited = load_source(write_folder(files={"generation_config.json": GENERATION | {"top_k": 63}}))
    assert edited.generation_defaults.digest != defaults.digest
    greedy = load_source(write_folder(files={"generation_config.json": GENERATION | {"do_sample": False}}))
    assert greedy.generation_defaults.values["temperature"].value == 0.0
    assert greedy.generation_defaults.values["temperature"].origin == "generation_config.json: do_sample"
    with pytest.raises(ModelError, match=r"top_k is 1.5"):
        load_source(write_folder(files={"generation_config.json": {"top_k": 1.5}}))


def test_no_generation_config_no_defaults(write_folder: Write, tiny: SimpleNamespace) -> None:
    source = load_source(write_folder())
    assert source.generation_defaults.values == {}
    assert source.tokenizer.eos_ids == (tiny.eos,)


def test_chat_template_file_comes_first(write_folder: Write) -> None:
    source = load_source(write_folder(files={"chat_template.jinja": "from the file"}))
    assert source.tokenizer.apply_chat_template([{"role": "user", "content": "x"}]) == "from the file"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"bos_token": "\ud800"}, "bos_token holds a lone surrogate"),
        ({"eos_token": {"content": "a\udfff"}}, "eos_token.content holds a lone surrogate"),
        ({"eos_token": 5}, "eos_token is 5"),
        ({"unk_token": {"content": []}}, r"unk_token.content is \[\]"),
        ({"chat_template": 5}, "chat_template is 5"),
        ({"chat_template": "{{ 1 }}\ud800"}, "chat_template holds a lone surrogate"),
        ({"chat_template": [{"name": "tool_use"}, {"name": "default", "template": 3}]}, "chat_template is 3"),
    ],
)
def test_special_tokens_and_templates_that_are_no_text_are_refused(
    write_folder: Write, changes: dict[str, Any], part: str
) -> None:
    load_source(write_folder(files={"tokenizer_config.json": {"eos_token": "<eos>"}}))
    with pytest.raises(ModelError, match=f"tokenizer_config.json: {part}"):
        load_source(write_folder(files={"tokenizer_config.json": {"eos_token": "<eos>"} | changes}))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_damaged_json_is_a_model_error(write_folder: Write, name: str) -> None:
    with pytest.raises(ModelError, match=name):
        load_source(write_folder(files={name: '{"a": '}))


HUGE = 10**400  # JSON has it, a double does not


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"config": {"rope_theta": HUGE}}, "rope_theta"),
        ({"config": {"rms_norm_eps": HUGE}}, "rms_norm_eps"),
        ({"config": {"vocab_size": HUGE}}, "vocab_size"),
        ({"files": {"generation_config.json": {"temperature": HUGE}}}, "temperature"),
        ({"files": {"generation_config.json": {"top_p": -HUGE}}}, "top_p"),
        ({"files": {"generation_config.json": {"top_k": HUGE}}}, "top_k"),
        ({"files": {"generation_config.json": {"eos_token_id": 5000}}}, "generation_config.json: eos_token_id is 5000"),
        ({"files": {"generation_config.json": {"eos_token_id": [1, HUGE]}}}, "eos_token_id is an integer of"),
        ({"config": {"eos_token_id": 5000}, "files": {"tokenizer_config.json": {}}}, "eos_token_id is 5000"),
        ({"config": {"bos_token_id": 5000}, "files": {"tokenizer_config.json": {}}}, "bos_token_id is 5000"),
        ({"files": {"tokenizer_config.json": {"eos_token": "<nowhere>"}}}, "eos_token is '<nowhere>'"),
    ],
)
def test_numbers_out_of_range_are_refused_by_key(write_folder: Any, changes: dict[str, Any], part: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_source(write_folder(**changes))
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [1], "data_offsets": [False, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, True]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]},
        {"dtype": "F32", "shape": [1], "data_offsets": None},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
    ],
)
def test_places_of_wrong_types_are_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    def write(content: dict[str, Any]) -> Path:
        header = json.dumps({"t": content}).encode()
        (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        return tmp_path / "x.safetensors"

    assert read_safetensors(write({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}))["t"].shape == (1,)
    with pytest.raises(ModelError, match="tensor t"):
        read_safetensors(write(entry))
