"""The journal: what a crash leaves is read back, and nothing is asked twice."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from samebits.audit.journal import Journal, read_journal
from samebits.audit.observation import Observation
from samebits.errors import InputError, MeasurementError


def observation(run: int, text: str = "yes") -> Observation:
    return Observation(target="t", prompt_id="p", run=run, condition=(("load", "on"),), text=text)


def write(path: Path, *runs: int, sent: tuple[int, ...] = ()) -> None:
    async def main() -> None:
        with Journal(path, "digest", {"plan": 1}) as journal:
            for step in sent:
                journal.sent("t", step)
            for run in runs:
                journal.add(observation(run))
            await journal.settle()

    asyncio.run(main())


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 0, sent=(0, 1))
    with Journal(path, "digest", {}) as journal:
        journal.opened("t", {"model": "m"})
        past = journal.past
    assert past.head is not None
    assert past.head["plan"] == 1
    assert past.sent == {"t": {0, 1}}
    assert past.done == {("t", "p", 0, (("load", "on"),))}
    assert past.torn == 0
    with Journal(path, "digest", {}) as journal:
        assert journal.past.known == {"t": {"model": "m"}}
    assert list(read_journal(path)) == [observation(0)]


def test_it_only_grows(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 0)
    before = path.read_bytes()
    write(path, 1)
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("keep", range(1, 60, 7))
def test_a_torn_last_line_is_removed_and_the_next_one_stands_alone(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "j"
    write(path, 0, 1)
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    path.write_bytes(whole[: start + keep])
    with Journal(path, "digest", {}) as journal:
        assert journal.past.torn == keep
        assert journal.past.done == {("t", "p", 0, (("load", "on"),))}
    write(path, 2)
    assert list(read_journal(path)) == [observation(0), observation(2)]


def test_a_whole_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 0, 1)
    path.write_bytes(path.read_bytes()[:-1])
    write(path, 2)
    assert list(read_journal(path)) == [observation(i) for i in (0, 1, 2)]


def test_negative_control_appending_after_a_torn_line_fuses_two(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 0, 1)
    path.write_bytes(path.read_bytes()[:-9])
    with path.open("ab") as file:
        file.write(b'{"sent":1,"target":"t"}\n')
    with pytest.raises(InputError, match="damaged"):
        list(read_journal(path))


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 0, 1)
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1][:-3]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match="line 2"):
        Journal(path, "digest", {})


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('{"sent":1}', "target"),
        ('{"sent":-1,"target":"t"}', "sent"),
        ('{"sent":1.5,"target":"t"}', "sent"),
        ('{"sent":[],"target":"t"}', "sent"),
        ('{"opened":"t"}', "known"),
        ('{"opened":[],"known":{}}', "opened"),
        ('{"journal":"samebits-audit-1","digest":1}', "digest"),
        ('{"target":"t","prompt_id":"p","run":-1,"text":""}', "run"),
        ('{"target":"t","prompt_id":"p","run":0,"text":"","timing":{"started":"NaN","total_s":1}}', "timing.started"),
        ('{"sent":' + "[" * 100_000, "maximum recursion"),
    ],
)
def test_a_line_with_a_wrong_value_is_refused_by_its_field(tmp_path: Path, line: str, field: str) -> None:
    path = tmp_path / "j"
    write(path, 0, 1)
    lines = path.read_text().split("\n")
    path.write_text("\n".join([lines[0], line, *lines[1:]]))
    for read in (lambda: Journal(path, "digest", {}), lambda: list(read_journal(path))):
        with pytest.raises(InputError, match=f"^journal: line 2.* is damaged: {field}"):
            read()
    path.write_text("\n".join(lines))
    assert len(list(read_journal(path))) == 2, "the control"


def test_another_plan_or_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 0)
    with pytest.raises(InputError, match="another plan"):
        Journal(path, "other", {})
    for text in (
        "hello\n",
        json.dumps({"journal": "samebits-audit-9", "digest": "digest"}) + "\n",
        '{"sent":1,"target":"t"}\n',
    ):
        path.write_text(text)
        with pytest.raises(InputError, match="journal"):
            Journal(path, "digest", {})
    with pytest.raises(InputError, match="journal"):
        Journal(tmp_path / "no-such-folder" / "j", "digest", {})


def test_two_processes_cannot_write_it(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", "digest", {}), pytest.raises(InputError, match="another process"):
        Journal(tmp_path / "j", "digest", {})
    Journal(tmp_path / "j", "digest", {}).__exit__(None, None, None)


@pytest.mark.parametrize("text", ["sk-a-key-in-a-file", "{}", '{"journal":"samebits-audit-9","dig', '{"sent":1'])
def test_a_foreign_file_of_one_line_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "j"
    path.write_text(text)
    with pytest.raises(InputError, match=r"journal"):
        Journal(path, "digest", {})
    assert path.read_text() == text


def test_a_torn_head_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path)
    whole = path.read_bytes()
    for keep in (0, 1, 15, len(whole) - 2):
        path.write_bytes(whole[:keep])
        with Journal(path, "digest", {}) as journal:
            assert journal.past.torn == keep
        assert json.loads(path.read_text())["digest"] == "digest"


def test_after_a_failed_write_nothing_more_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line behind one that a full disk cut short would make a damaged one of it."""
    path, really = tmp_path / "j", os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return really(file, data[:-10])

    with Journal(path, "digest", {}) as journal:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            with pytest.raises(MeasurementError, match="No space"):
                journal.sent("t", 0)
        with pytest.raises(MeasurementError, match="any more"):
            journal.sent("t", 1)
    with Journal(path, "digest", {}) as journal:
        assert journal.past.torn > 0
        assert journal.past.sent == {}


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_device_is_no_journal(device: str) -> None:
    with pytest.raises(InputError, match="journal: is no file"):
        Journal(Path(device), "digest", {})
