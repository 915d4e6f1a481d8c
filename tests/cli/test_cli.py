"""The command line as a user meets it: output, JSON, and exit codes without tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from samebits.cli.app import app
from samebits.engine import SamplingParams
from waiting import PATIENCE_S


def samebits(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "samebits", *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_info_names_the_chosen_path() -> None:
    facts = json.loads(samebits("info", "--json").stdout)
    assert facts["contract"] == "samebits-1"
    assert facts["chosen"] == facts["isas"][-1]


@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["generate", "no-such-model", "--prompt", "hi"], "model"),
        (["generate", "smollm2", "--prompt", ""], "prompt"),
        (["generate", "smollm2", "--prompt", "", "--chat"], "prompt"),
        (["generate", "smollm2", "--prompt", "hi", "--max-tokens", "0"], "max_tokens"),
        (["generate", "smollm2", "--prompt", "hi", "--max-tokens", "100000"], "max_tokens"),
        (["generate", "smollm2", "--prompt", "hi " * 9000], "prompt"),
        (["generate", "smollm2", "--prompt", "hi", "--temperature", "nan"], "temperature"),
        (["generate", "smollm2", "--prompt", "hi", "--top-p", "0"], "top_p"),
        (["generate", "smollm2", "--prompt", "hi", "--seed", str(2**63)], "seed"),
        (["generate", "smollm2", "--prompt", "hi", "--profile", "fp64"], "profile"),
        (["generate", "smollm2", "--prompt", "hi", "--threads", "0"], "threads"),
        (["generate", "smollm2", "--prompt", "hi", "--isa", "sse9"], "isa"),
        (["generate", "smollm2", "--prompt", "\U00050000"], "prompt"),
        (["demo", "--runs", "1"], "runs"),
        (["demo", "--profile", "vendor"], "profile"),
        (["demo", "--json", "no-such-folder/x.json"], "json"),
    ],
)
def test_bad_input_names_the_field_and_exits_with_2(arguments: list[str], field: str) -> None:
    result = samebits(*arguments)
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith(f"samebits: {field}"), result.stderr
    assert "Traceback" not in result.stderr


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00")
    result = samebits("generate", str(broken), "--prompt", "hi")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_unknown_option_exits_with_2() -> None:
    assert samebits("generate", "smollm2", "--prompt", "hi", "--temprature", "1").returncode == 2


@pytest.mark.usefixtures("smollm2_path")
def test_generate_gives_the_same_json_twice() -> None:
    command = ["generate", "smollm2", "--prompt", "Name three rivers.", "--chat", "--max-tokens", "8", "--json"]
    first, second = samebits(*command), samebits(*command, "--threads", "1")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    result = json.loads(first.stdout)
    assert len(result["token_ids"]) == len(result["logprobs"]) == 8
    assert result["fingerprint"].startswith("sha256:")
    assert result["params"]["max_tokens"] == {"value": 8, "origin": "request"}
    assert result["params"]["temperature"] == {"value": 0.0, "origin": "samebits"}, "it was not given"


def test_defaults_in_the_help_are_those_of_the_parameters() -> None:
    group: Any = typer.main.get_command(app)
    shown = {p.name: p.show_default for p in group.commands["generate"].params if "model's" in str(p.show_default)}
    assert set(shown) >= {"max_tokens", "temperature", "top_p"}
    assert shown == {name: f"the model's, or {getattr(SamplingParams(), name):g}" for name in shown}


@pytest.mark.usefixtures("smollm2_path")
def test_generate_shows_its_parameters_and_where_they_came_from() -> None:
    command = ["generate", "smollm2", "--prompt", "Once", "--max-tokens", "2", "--temperature", "0"]
    quiet, shown = samebits(*command), samebits(*command, "--show-params")
    assert shown.stdout == quiet.stdout
    assert quiet.stderr == ""
    lines = [line.split() for line in shown.stderr.splitlines()]
    assert ["temperature", "0.0", "request"] in lines
    assert ["top_p", "1.0", "samebits"] in lines


@pytest.mark.usefixtures("smollm2_path")
def test_generate_follows_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "colour.json"
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    file.write_text(json.dumps(schema | {"additionalProperties": False}))
    command = ["generate", "smollm2", "--prompt", "Name a colour.", "--chat", "--json-schema", str(file)]
    result = samebits(*command)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["colour"] in ("red", "blue")
    cut = samebits(*command, "--max-tokens", "3")
    assert cut.returncode == 0
    assert "incomplete" in cut.stderr
    for content, part in (("{", "is not JSON"), ('{"not": {}}', "not at #"), (None, "cannot be read")):
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
        refused = samebits(*command)
        assert refused.returncode == 2
        assert refused.stderr.startswith("samebits: json_schema: ")
        assert part in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.usefixtures("smollm2_path")
def test_demo_writes_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    result = samebits("demo", "--runs", "6", "--max-tokens", "6", "--profile", "bf16", "--json", str(file))
    assert result.returncode == 0, result.stdout + result.stderr
    vendor, ours = json.loads(file.read_text())["rows"]
    assert vendor["profile"] == "vendor"
    assert ours["unique"] == ours["logprob_variants"] == 1
    assert ours["first_divergence"] is None
    assert ours["max_logprob_diff"] == 0
    assert set(ours) >= {
        "mode", "profile", "completions", "unique", "modal_share", "first_divergence", "max_logprob_diff",
        "tokens_per_s", "relative_speed",
    }  # fmt: skip
    assert vendor["logprob_variants"] > 1, "the control shows nothing: the vendor's bits never moved"
