"""``samebits tradeoff`` from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from samebits.audit.targets import transformers as module
from samebits.cli import main
from small_model import write_model


def tradeoff(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["samebits", "tradeoff", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n')
    return str(path)


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("no_such_package",))


SMALL = ("--streams", "2", "--runs", "2", "--rounds", "1", "--max-tokens", "4")


def test_what_can_be_measured_is_and_the_rest_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prompts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    files = {name: str(tmp_path / f"t.{name}") for name in ("json", "html", "svg")}
    options = [part for name, file in files.items() for part in (f"--{name}", file)]
    assert tradeoff(monkeypatch, write_model(folder), *SMALL, "--prompts", prompts, *options) == 0
    out = capsys.readouterr().out
    for name in ("default", "one at a time", "framework-deterministic", "sampled, no seed", "sampled, a seed"):
        assert f"{name} is not measured: target: needs no_such_package" in out
    document = json.loads(Path(files["json"]).read_text())
    measured = {row["approach"]["name"] for row in document["rows"] if row["speed"] is not None}
    assert measured == {f"batch-invariant{end}" for end in (" fp32", " bf16", " int8", ", no seed", ", a seed")}
    assert all(row["relative"] is None for row in document["rows"])
    assert document["published"]
    assert "<svg" in Path(files["html"]).read_text()
    assert Path(files["svg"]).read_text().startswith("<svg")


def test_where_nothing_can_be_compared_the_code_is_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prompts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tradeoff(monkeypatch, str(tmp_path / "nothing"), *SMALL, "--prompts", prompts) == 3
    assert "nothing is compared" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "field"),
    [(["--streams", "1"], "streams"), (["--json", "no-such-folder/x.json"], "json"), (["--prompts", "no"], "prompts")],
)
def test_wrong_options_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], field: str
) -> None:
    assert tradeoff(monkeypatch, "smollm2", *options) == 2
    assert field in capsys.readouterr().err
