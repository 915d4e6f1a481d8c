"""``samebits report``, and the files of ``samebits audit``: the same result gives the same bytes, now or later."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))

from documents import flaky_text
from stub_server import Answer, Incoming, stub

from samebits.cli import main

FORMS = ("html", "markdown", "junit")


def samebits(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code."""
    monkeypatch.setattr(sys, "argv", ["samebits", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def flaky(incoming: Incoming) -> Answer:
    return Answer("yes" if incoming.number % 3 else "no")


def test_a_report_made_later_has_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text('{"id": "one", "messages": [{"role": "user", "content": "Say 1"}]}\n')
    with stub(flaky) as server:
        arguments = ["audit", server.url, "--prompts", "prompts.jsonl", "--runs", "6", "--concurrency", "1,2",
                     "--journal", "j", "--json", "now.json", "--fail-under", "1"]  # fmt: skip
        code = samebits(monkeypatch, *arguments, *(x for form in FORMS for x in (f"--{form}", f"now.{form}")))
    assert code == 1
    assert samebits(monkeypatch, "report", "now.json", *(x for f in FORMS for x in (f"--{f}", f"later.{f}"))) == 0
    for form in FORMS:
        assert Path(f"now.{form}").read_bytes() == Path(f"later.{form}").read_bytes()
    page = Path("now.html").read_text("utf-8")
    assert f"samebits audit {server.url}" in page, "the command that repeats it"
    assert "yes" in page
    cases = ET.parse("now.junit").getroot().findall(".//testcase")
    failed = {case.get("name") for case in cases if case.find("failure") is not None}
    assert {"equal in text", "exact-repeat rate of at least 1"} <= failed


ONE_OF_MANY = re.compile(
    r"(?<![\d.,–-])\b1\s(?:[a-z]+[ -])?(prompts|runs|requests|answers|orders|blocks|targets|tokens|pairs|places|events"
    r"|items|passes|texts|models|threads|bytes|journals|failures|permutations)\b"
)


def test_one_is_no_plural(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An audit of one of everything: what it prints, and all forms of its report."""
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text(
        '{"id": "one", "kind": "label", "labels": ["yes"], "messages": [{"role": "user", "content": "Say 1"}]}\n'
    )

    def failing(incoming: Incoming) -> Answer:
        return Answer("not now", status=503) if incoming.number == 1 else Answer("yes no"[3 * (incoming.number % 2) :])

    with stub(failing) as server:
        ones = [
            x for name in ("concurrency", "orders", "times", "max-tokens", "top-logprobs") for x in (f"--{name}", "1")
        ]
        files = [x for form in ("json", *FORMS) for x in (f"--{form}", f"r.{form}")]
        arguments = [server.url, "--prompts", "prompts.jsonl", "--runs", "2", *ones, *files, "--fail-under", "0"]
        assert samebits(monkeypatch, "audit", *arguments) == 0
    said = [capsys.readouterr().out, *(Path(f"r.{form}").read_text("utf-8") for form in FORMS)]
    assert "2 runs of 1 prompt" in said[0]
    assert "1 request was sent again" in said[0]
    for text in said:
        assert [text[found.start() - 40 : found.end()] for found in ONE_OF_MANY.finditer(text)] == []
    assert ONE_OF_MANY.search("in 1 prompts"), "the control"
    assert not ONE_OF_MANY.search("21 prompts, 1 of 2 runs, 0.1 tokens"), "the control"


def test_one_form_alone_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_text(flaky_text(), "utf-8")
    assert samebits(monkeypatch, "report", "r.json", "--markdown", "r.md") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.json", "r.md"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["none.json", "--html", "a"], "result"),
        (["r.json"], "html"),
        (["r.json", "--html", "no-such-folder/a"], "html"),
        (["r.json", "--markdown", "."], "markdown"),
        (["r.json", "--html", "a", "--junit", "./a"], "junit"),
        (["wrong.json", "--junit", "a"], "result"),
    ],
)
def test_wrong_input_names_the_field_and_writes_nothing(
    arguments: list[str],
    field: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_text(flaky_text(), "utf-8")
    Path("wrong.json").write_text('{"audit": 1}', "utf-8")
    assert samebits(monkeypatch, "report", *arguments) == 2
    assert capsys.readouterr().err.startswith(f"samebits: {field}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.json", "wrong.json"]


def test_without_the_package_for_plots_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with stub(flaky) as server:
        assert samebits(monkeypatch, "audit", server.url, "--html", "a.html") == 2
        assert server.requests == []
    assert "pip install 'samebits[report]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--prompts", "--journal", "--key-file"])
def test_no_file_of_an_audit_is_overwritten(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("mine")
    assert samebits(monkeypatch, "audit", "http://127.0.0.1:9", option, "mine", "--html", "./mine") == 2
    name = option.removeprefix("--").replace("-", "_")
    assert capsys.readouterr().err.startswith(f"samebits: html: is the file of {name}, too")
    assert samebits(monkeypatch, "report", "mine", "--junit", "mine") == 2
    assert capsys.readouterr().err.startswith("samebits: junit: is the file of result, too")
    assert Path("mine").read_text() == "mine"
