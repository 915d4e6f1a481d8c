"""``samebits compare``: journals of two dates or of two targets, over HTTP from a server that changes or does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))

from audits import audited, prompts_of
from stub_server import Answer, Incoming, Stub, stub

from samebits.cli import main


def compare(*arguments: str | Path) -> int:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["samebits", "compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def steady(incoming: Incoming) -> Answer:
    return Answer(f"{incoming.prompt} yes", fingerprint="fp-1")


def moved(incoming: Incoming) -> Answer:
    return Answer("something else" if incoming.prompt == "Say 1" else f"{incoming.prompt} yes", fingerprint="fp-2")


def sampled(start: int) -> object:
    """Draws from four answers; another start is another piece of one and the same sequence."""

    def answer(incoming: Incoming) -> Answer:
        return Answer("abcd"[hash((start + incoming.number) * 2654435761 % 2**32) // 7 % 4] * 3)

    return answer


def journal(path: Path, server: Stub, **values: object) -> Path:
    audited(server, path, prompts=prompts_of(4), runs=6, concurrency=(1,), top_logprobs=None, **values)
    return path


def test_two_dates_of_a_server_that_did_not_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(steady) as server:
        first, second = journal(tmp_path / "a", server), journal(tmp_path / "b", server)
    for _ in range(2):  # equal data, equal verdicts
        assert compare(first, second) == 0
    said = capsys.readouterr().out
    assert said[: len(said) // 2] == said[len(said) // 2 :]
    assert "No difference of answers seen" in said
    assert "On 4 prompts each side always gave one answer; all match." in said
    assert f"stub in {first}: fingerprints fp-1." in said


def test_two_dates_of_a_server_that_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(steady) as server:
        first = journal(tmp_path / "a", server)
        server.model = moved
        second = journal(tmp_path / "b", server)
    assert compare(first, second, "--json", tmp_path / "c.json") == 1
    said = capsys.readouterr().out
    assert "The answers DIFFER" in said
    assert "1 does NOT match: p1." in said
    assert "fingerprints fp-2" in said
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["different"] is True
    assert found["comparison"]["targets"] == [f"stub in {first}", f"stub in {second}"]


def test_what_varies_in_the_same_way_is_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(sampled(0)) as server:  # type: ignore[arg-type]
        first = journal(tmp_path / "a", server)
        server.model = sampled(1000)  # type: ignore[assignment]
        second = journal(tmp_path / "b", server)
    assert compare(first, second) == 0
    assert "No difference of answers seen" in capsys.readouterr().out


def test_settings_that_differ_and_prompts_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(steady) as server:
        first, second = journal(tmp_path / "a", server), journal(tmp_path / "b", server, max_tokens=9)
        audited(server, tmp_path / "c", prompts=prompts_of(3), runs=6)
    assert compare(first, second) == 0
    assert "Not asked alike: max_tokens was 8 and 9" in capsys.readouterr().out
    assert compare(first, tmp_path / "c") == 2
    assert capsys.readouterr().err.startswith("samebits: journals: the two asked different prompts")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["none"], "journal"),
        (["text"], "journal"),
        (["a"], "first"),
        (["a", "a", "--second", "other"], "second"),
        (["a", "a", "a"], "journals"),
        (["a", "a", "--unit", "words"], "unit"),
        (["a", "b", "--level", "0"], "level"),
        (["a", "a", "--json", "no-such-folder/x"], "json"),
    ],
)
def test_wrong_input_names_the_field(
    arguments: list[str],
    field: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("hello\n")
    with stub(steady) as server:
        journal(Path("a"), server)
        journal(Path("b"), server)
    assert compare(*arguments) == 2
    assert capsys.readouterr().err.startswith(f"samebits: {field}:")


def test_one_audit_is_not_compared_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(steady) as server:
        first, second = journal(tmp_path / "a", server), journal(tmp_path / "b", server)
    copy = tmp_path / "copy"
    copy.write_bytes(first.read_bytes())
    for arguments in ([first, first], [first, copy], [first, "--first", "stub", "--second", "stub"]):
        assert compare(*arguments) == 2
        assert "of one and the same audit" in capsys.readouterr().err
    assert compare(first, second) == 0


def test_journals_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in "xy":
        (tmp_path / day).mkdir()
    with stub(steady) as server:
        first, second = (journal(tmp_path / day / "j", server) for day in "xy")
    assert compare(first, second) == 0
    assert capsys.readouterr().out.startswith(f"stub in {first} and stub in {second}\n")


def test_a_journal_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(steady) as server:
        first, second = journal(tmp_path / "a", server), journal(tmp_path / "b", server)
    before = second.read_bytes()
    assert compare(first, second, "--json", second) == 2
    assert capsys.readouterr().err.startswith("samebits: json: is the file of journal 2, too")
    assert second.read_bytes() == before


def test_a_journal_that_was_cut_short_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(steady) as server:
        first, second = journal(tmp_path / "a", server), journal(tmp_path / "b", server)
    second.write_bytes(second.read_bytes()[:-20])
    assert compare(first, second) == 2
    said = capsys.readouterr().err
    assert said.startswith("samebits: journal: line ")
    assert f" of {second} is damaged: not JSON" in said
    assert ".." not in said
    second.write_bytes(second.read_bytes()[:40])
    assert compare(first, second) == 2
    assert capsys.readouterr().err.startswith(f"samebits: journal: line 1 of {second} is damaged")


def test_a_side_without_any_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def never(incoming: Incoming) -> Answer:
        return steady(incoming) if incoming.number < 1 else Answer("no more", status=400)

    with stub(steady) as server, stub(never) as dead:
        first, second = (
            audited(s, tmp_path / name, prompts=prompts_of(4), runs=2, times=1, orders=1) and tmp_path / name
            for s, name in ((server, "a"), (dead, "b"))
        )
    assert compare(first, second) == 3
    assert "not one of 8 requests was answered" in capsys.readouterr().err


def test_the_first_line_is_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With two runs a side no test of distributions can see what replay shows."""
    with stub(steady) as server:
        options = {"prompts": prompts_of(2), "runs": 2, "times": 1, "orders": 1}
        audited(server, tmp_path / "a", **options)  # type: ignore[arg-type]
        server.model = moved
        audited(server, tmp_path / "b", **options)  # type: ignore[arg-type]
    assert compare(tmp_path / "a", tmp_path / "b") == 1
    assert capsys.readouterr().out.splitlines()[1].startswith("The answers DIFFER: on 2 prompts each side always gave")


def test_one_answer_a_prompt_is_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def once(incoming: Incoming) -> Answer:
        return steady(incoming) if incoming.number < 5 else Answer("no more", status=400)

    for name in "ab":
        with stub(once) as server:
            audited(server, tmp_path / name, prompts=prompts_of(4), runs=2, times=1, orders=1)
    assert compare(tmp_path / "a", tmp_path / "b") == 3
    said = capsys.readouterr()
    assert said.err.startswith("samebits: no prompt has two answers on both sides")
    assert "4 failed runs are not compared" in said.out


# ---- audits that are not whole, and plans that differ ----------------------------------------------------------------


def cut_short(path: Path, answers: int) -> None:
    """Leaves a journal as an audit does that was stopped after so many answers, with one request in flight."""
    kept, seen = [], 0
    for line in path.read_text().splitlines(keepends=True):
        if '"prompt_id":' in line:
            seen += 1
            if seen > answers:
                break
        kept.append(line)
    path.write_text("".join(kept))


def test_an_unfinished_audit_is_said_and_what_that_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(steady) as server:
        first, second = journal(tmp_path / "a", server), journal(tmp_path / "b c", server)
    assert compare(first, second, "--json", tmp_path / "whole.json") == 0
    assert "UNFINISHED" not in capsys.readouterr().out
    cut_short(second, 17)
    assert compare(first, second, "--json", tmp_path / "cut.json") == 0
    said = capsys.readouterr().out.splitlines()
    [unfinished] = [line for line in said if line.startswith("UNFINISHED")]
    assert unfinished.startswith(
        f"UNFINISHED: 7 of 24 planned requests of stub in {second} have no outcome. The verdict is"
    )
    assert f"--journal '{second}' goes on with it" in unfinished
    whole, cut = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "cut"))
    assert (whole["finished"], cut["finished"]) == (True, False)
    assert [(side["planned"], side["missing"]) for side in cut["sides"]] == [(24, 0), (24, 7)]
    assert unfinished in cut["verdict"]


def test_a_failed_request_has_an_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def sometimes(incoming: Incoming) -> Answer:
        return steady(incoming) if incoming.number % 5 else Answer("no", status=400 if incoming.number else 200)

    with stub(sometimes) as server:
        first, second = journal(tmp_path / "a", server), journal(tmp_path / "b", server)
    compare(first, second)
    said = capsys.readouterr().out
    assert "failed runs are not compared" in said
    assert "UNFINISHED" not in said


def test_plans_that_differ_and_conditions_of_one_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"prompts": prompts_of(4), "runs": 6, "top_logprobs": None}
    with stub(steady) as server:
        audited(server, tmp_path / "a", **options)  # type: ignore[arg-type]
        audited(server, tmp_path / "b", **(options | {"concurrency": (1, 2), "runs": 4}))  # type: ignore[arg-type]
        server.model = moved
        audited(server, tmp_path / "c", **(options | {"streaming": ("on",)}))  # type: ignore[arg-type]
    a, b, c = (tmp_path / name for name in "abc")
    assert compare(a, b, "--json", tmp_path / "d.json") == 0
    said = capsys.readouterr().out
    assert "Not the same plan: runs 6 and 4; concurrency 1 and 1, 2." in said
    assert f"Only stub in {b} has answers under concurrency 2: of the other side there, nothing is known." in said
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["planned_differently"] == {"runs": [6, 4], "concurrency": [[1], [1, 2]]}
    assert [side["only_here"] for side in found["sides"]] == [{}, {"concurrency": ["2"]}]
    assert compare(a, c) == 1
    said = capsys.readouterr().out
    assert f"Only stub in {a} has answers under streaming off: a difference may be of that." in said
    assert f"Only stub in {c} has answers under streaming on: a difference may be of that." in said


def test_a_part_of_an_audit_lacks_conditions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal plans; one audit was stopped before it came to its second level."""
    options = {"prompts": prompts_of(4), "runs": 4, "concurrency": (1, 2), "times": 1, "orders": 1}
    with stub(steady) as server:
        for name in "ab":
            audited(server, tmp_path / name, **options)  # type: ignore[arg-type]
    cut_short(tmp_path / "b", 14)
    assert compare(tmp_path / "a", tmp_path / "b") == 0
    said = capsys.readouterr().out
    assert "UNFINISHED: 18 of 32 planned requests" in said
    assert f"Only stub in {tmp_path / 'a'} has answers under concurrency " in said
    assert "Not the same plan" not in said


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ('"runs":6', '"runs":1', "runs: 1 is out of range"),
        ('"runs":6', '"runs":"many"', "experiment.runs"),
        ('"temperature":0.0', '"temperature":NaN', "temperature: nan"),
        ('"experiment":', '"experiments":', "experiment:"),
        ('"prompt_ids":', '"ids":', "prompt_ids"),
    ],
)
def test_a_head_that_is_wrong_is_refused_by_its_field(
    before: str, after: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub(steady) as server:
        first, second = journal(tmp_path / "a", server), journal(tmp_path / "b", server)
    text = second.read_text()
    assert before in text
    second.write_text(text.replace(before, after, 1))
    assert compare(first, second) == 2
    said = capsys.readouterr().err
    assert said.startswith("samebits: journal: ")
    assert field in said


def test_two_targets_of_one_audit(tmp_path: Path) -> None:
    """As a user does it: a YAML file, an audit, and its journal compared."""
    (tmp_path / "p.jsonl").write_text('{"messages": [{"role": "user", "content": "Say 1"}]}\n')
    with stub(steady) as one, stub(moved) as other:
        entries = [{"target": one.url, "name": "one"}, {"target": other.url, "name": "other"}]
        (tmp_path / "t.yaml").write_text(json.dumps({"targets": entries}))
        small = ["--prompts", "p.jsonl", "--runs", "6", "--concurrency", "1", "--journal", "j"]
        command = [sys.executable, "-m", "samebits"]
        ran = subprocess.run([*command, "audit", "t.yaml", *small], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert "samebits compare j" in ran.stdout
        found = subprocess.run([*command, "compare", "j"], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 1, found.stderr
    assert found.stdout.startswith("one and other\nThe answers DIFFER")
