"""Case D08: the fingerprint changes with each thing that can move a bit, and with nothing that is not read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.small_model import write_model

from samebits import LLM, SamplingParams

PROMPT = "AB <|im_end|> x"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_model(tmp_path_factory.mktemp("model")))


def in_json(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))

    return change


def one_bit(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def not_special(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"][0]["special"] = False
    path.write_text(json.dumps(content))


def answer(folder: Path, profile: str = "fp32") -> tuple[str, object]:
    """The fingerprint, and the bits of an answer."""
    with LLM(str(folder), profile) as llm:
        [completion] = llm.generate(PROMPT, SamplingParams(max_tokens=24, logprobs=0, seed=1))
        assert completion.logprobs is not None
        return llm.fingerprint, (completion.text, completion.token_ids, completion.logprobs.tobytes())


MOVING: dict[str, Callable[[Path], None]] = {
    "a bit of a weight": one_bit,
    "norm": in_json("config.json", rms_norm_eps=1e-3),
    "rotation": in_json("config.json", rope_theta=500.0),
    "scaling of the rotation": in_json("config.json", rope_scaling={"rope_type": "linear", "factor": 2.0}),
    "text to ids": in_json("tokenizer.json", normalizer={"type": "Lowercase"}),
    "a token that is special": not_special,
    "end of text": in_json("tokenizer_config.json", eos_token="<|im_start|>"),
    "temperature": in_json("generation_config.json", do_sample=True, temperature=0.5),
    "penalty": in_json("generation_config.json", repetition_penalty=1.7),
}


@pytest.mark.parametrize("what", MOVING)
def test_what_moves_an_answer_changes_the_fingerprint(original: Path, tmp_path: Path, what: str) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(original, changed)
    MOVING[what](changed)
    (before, bits), (now, other) = answer(original), answer(changed)
    assert bits != other, "not exercised: the answer is the same"
    assert now != before


@pytest.mark.parametrize("profile", ["bf16", "int8"])
def test_another_profile_has_another_fingerprint(original: Path, profile: str) -> None:
    assert answer(original, profile)[0] != answer(original)[0]


def test_another_chat_template_has_another_fingerprint(original: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(original, changed)
    in_json("tokenizer_config.json", chat_template="{{ messages[0].content }}")(changed)
    assert answer(changed)[0] != answer(original)[0]


def test_control_another_place_time_and_unread_file_change_nothing(original: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(original, copy, copy_function=shutil.copyfile)  # without times and rights
    (copy / "README.md").write_text("a model")
    assert answer(copy) == answer(original) == answer(original)
