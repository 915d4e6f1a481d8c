"""Case M04: what a model brings along is read, applied, shown, and part of the fingerprint."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samebits import LLM, SamplingParams
from samebits.errors import InputError, ModelError
from samebits.models import load_source
from samebits.models.generation_defaults import FILE_NAME, read_generation_defaults
from waiting import PATIENCE_S

Write = Callable[..., Path]
CASE = {"do_sample": True, "temperature": 1.0, "top_k": 64, "top_p": 0.95, "repetition_penalty": 1.05}
PROMPT = [5, 6, 7]


def values(folder: Path, content: dict[str, Any]) -> dict[str, tuple[float, str]]:
    (folder / FILE_NAME).write_text(json.dumps(content))
    return {n: (d.value, d.origin.split(": ")[1]) for n, d in read_generation_defaults(folder).values.items()}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, {}),
        ({"do_sample": True}, {"temperature": (1.0, "do_sample")}),
        ({"do_sample": True, "temperature": 0.6}, {"temperature": (0.6, "temperature")}),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": (0.0, "do_sample")}),
        ({"do_sample": False}, {"temperature": (0.0, "do_sample")}),
        ({"do_sample": None, "temperature": None}, {}),
        ({"temperature": 0.6}, {"temperature": (0.6, "temperature")}),
        ({"top_k": -1, "min_p": 0.1}, {"top_k": (0, "top_k"), "min_p": (0.1, "min_p")}),
        ({"max_new_tokens": 99}, {"max_tokens": (99, "max_new_tokens")}),
    ],
)
def test_keys_of_the_file_and_what_they_mean(
    content: dict[str, Any], expected: dict[str, tuple[float, str]], tmp_path: Path
) -> None:
    assert values(tmp_path, content) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"do_sample": "yes"}, "do_sample is 'yes', not true or false"),
        ({"do_sample": 1}, "do_sample is 1, not true or false"),
        ({"temperature": "0.5"}, "temperature is '0.5', not a number"),
        ({"temperature": True}, "temperature is True, not a number"),
        ({"temperature": math.nan}, "temperature is nan, not a number"),
        ({"top_k": 5.0}, "top_k is 5.0, not a number"),
        ({"typical_p": math.inf}, "has no canonical form"),
    ],
)
def test_damaged_values_are_refused_by_name(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        values(tmp_path, content)
    assert caught.value.field == str(tmp_path / FILE_NAME)


def test_keys_without_effect_are_announced_and_neutral_ones_are_not(write_folder: Write) -> None:
    quiet = {"typical_p": 1.0, "num_beams": 1, "no_repeat_ngram_size": 0, "use_cache": True, "suppress_tokens": None}
    loud = {"num_beams": 4, "no_repeat_ngram_size": 3, "typical_p": 0.9, "a_new_key": 0}
    LLM(str(write_folder(files={FILE_NAME: CASE | quiet}))).close()  # a warning would be an error
    with pytest.warns(UserWarning, match="no effect here: a_new_key, no_repeat_ngram_size, num_beams, typical_p$"):
        LLM(str(write_folder(files={FILE_NAME: CASE | loud}))).close()


def test_the_command_line_announces_them_too(write_folder: Write) -> None:
    folder = str(write_folder(files={FILE_NAME: {"num_beams": 4}}))
    command = [sys.executable, "-m", "samebits", "generate", folder, "--prompt", "a", "--max-tokens", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr
    assert result.stderr == (
        "samebits: warning: the model's generation defaults hold what has no effect here: num_beams\n"
    )


def test_a_gguf_file_brings_its_own(write_gguf: Write) -> None:
    keys: dict[str, Any] = {"temp": 0.5, "top_k": 20, "penalty_repeat": 1.25, "penalty_last_n": 64, "mirostat": 0}
    keys |= {"mirostat_tau": 5.0, "sequence": "top_k;temperature"}
    plain = load_source(write_gguf()).generation_defaults
    assert (plain.values, plain.ignored) == ({}, ())
    defaults = load_source(write_gguf({f"general.sampling.{k}": v for k, v in keys.items()})).generation_defaults
    assert {name: (d.value, d.origin) for name, d in defaults.values.items()} == {
        "temperature": (0.5, "GGUF: general.sampling.temp"),
        "top_k": (20, "GGUF: general.sampling.top_k"),
        "repetition_penalty": (1.25, "GGUF: general.sampling.penalty_repeat"),
    }
    assert defaults.ignored == ("general.sampling.penalty_last_n", "general.sampling.sequence")
    assert defaults.digest != plain.digest
    with pytest.raises(ModelError, match=r"general\.sampling\.temp is 'hot'"):
        load_source(write_gguf({"general.sampling.temp": "hot"}))


def test_the_case_through_the_api(write_folder: Write) -> None:
    """No parameters; temperature 0; top_p only."""
    with LLM(str(write_folder(files={FILE_NAME: CASE}))) as llm:
        rest = {"seed": 3, "max_tokens": 12, "ignore_eos": True}
        for explicit in ({}, {"temperature": 0}, {"top_p": 0.5}):
            spelt = {name: value for name, value in CASE.items() if name != "do_sample"} | explicit
            [implied] = llm.generate(PROMPT, SamplingParams.from_mapping(explicit | rest))
            [written] = llm.generate(PROMPT, SamplingParams.from_mapping(spelt | rest))
            assert implied.token_ids == written.token_ids
            assert implied.params == written.params
            for name in spelt:
                assert getattr(implied.params, name) == spelt[name]
                expected = "request" if name in explicit else f"{FILE_NAME}: {name}"
                assert implied.origins[name] == expected
            assert (implied.origins["seed"], implied.origins["min_p"]) == ("request", "samebits")
        greedy = {
            llm.generate(PROMPT, SamplingParams(temperature=0, seed=s, max_tokens=9))[0].token_ids for s in range(4)
        }
        drawn = {llm.generate(PROMPT, SamplingParams(seed=s, max_tokens=9))[0].token_ids for s in range(4)}
    assert len(greedy) == 1, "temperature 0 is greedy, although the file samples"
    assert len(drawn) > 1, "not exercised: the file's temperature was not applied"


def test_control_without_the_file_the_same_request_is_greedy(write_folder: Write) -> None:
    with LLM(str(write_folder())) as llm:
        answers = [llm.generate(PROMPT, SamplingParams(seed=s, max_tokens=9))[0] for s in range(4)]
    assert len({a.token_ids for a in answers}) == 1
    assert {a.origins["temperature"] for a in answers} == {"samebits"}


def test_do_sample_false_is_greedy_unless_the_request_says_otherwise(write_folder: Write) -> None:
    with LLM(str(write_folder(files={FILE_NAME: CASE | {"do_sample": False}}))) as llm:
        [greedy] = llm.generate(PROMPT, SamplingParams(max_tokens=4))
        assert (greedy.params.temperature, greedy.origins["temperature"]) == (0, f"{FILE_NAME}: do_sample")
        assert llm.generate(PROMPT, SamplingParams(max_tokens=4, temperature=0.7))[0].params.temperature == 0.7


def test_a_default_out_of_range_is_refused_before_anything_is_generated(write_folder: Write) -> None:
    with LLM(str(write_folder(files={FILE_NAME: {"temperature": 9.0}}))) as llm:
        with pytest.raises(InputError, match=rf"^temperature: .*9\.0 \({FILE_NAME}: temperature\)"):
            llm.generate(PROMPT)
        assert not llm.engine.busy
        assert llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=2))[0].error is None


def test_editing_the_file_between_restarts_changes_the_fingerprint(write_folder: Write) -> None:
    def fingerprints(content: Any) -> tuple[str, str]:
        with LLM(str(write_folder(files={FILE_NAME: content}))) as llm:
            return llm.fingerprint, load_source(write_folder()).weights_digest

    first, weights = fingerprints(CASE)
    assert fingerprints(json.dumps(CASE, indent=8)) == (first, weights), "spaces are no content"
    for edit in ({"top_k": 63}, {"do_sample": False}, {"temperature": 1.5}):
        other, same = fingerprints(CASE | edit)
        assert other != first
        assert same == weights, "not exercised: something else changed as well"
