"""``samebits ledger`` and ``samebits keys`` as they are called."""

from __future__ import annotations

import json
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.verbs import samebits
from tests.ledger.conftest import make_entry

from samebits.ledger import Ledger
from samebits.ledger.keys import PRIVATE_NAME, write_new
from waiting import PATIENCE_S


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Three records, of two tenants."""
    times = iter(range(10**18, 2 * 10**18, 10**9))
    found = f"sqlite:///{tmp_path}/ledger.db"
    with Ledger.open(found, clock=lambda: next(times), anchors=tmp_path / "anchors") as ledger:
        ledger.append([make_entry(1), make_entry(2, kind="error", answer=None, error={"type": "x"})])
        ledger.append([make_entry(3, tenant="other")])
    return found


def test_list_and_show(url: str) -> None:
    rows = samebits("ledger", "list", "--url", url).stdout.splitlines()
    assert len(rows) == 3
    assert rows[0].split()[:4] == ["default", "1", "2001-09-09T01:46:40.000Z", "answer"]
    one = samebits("ledger", "list", "--url", url, "--kind", "error", "--model", "m", "--json")
    assert [json.loads(line)["seq"] for line in one.stdout.splitlines()] == [2]
    some = samebits("ledger", "list", "--url", url, "--limit", "1")
    assert (len(some.stdout.splitlines()), "more than 1" in some.stderr) == (1, True)
    assert samebits("ledger", "list", "--url", url, "--since", "1h").stdout == ""
    shown = samebits("ledger", "show", make_entry(1).id, "--url", url)
    assert json.loads(shown.stdout)["body"]["request"] == make_entry(1).request
    missing = samebits("ledger", "show", "nothing", "--url", url)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("samebits: id: is not in this ledger")


def test_fsck_finds_a_change_and_says_so(url: str, tmp_path: Path) -> None:
    good = samebits("ledger", "fsck", "--url", url, "--anchors", tmp_path / "anchors")
    assert (good.returncode, good.stdout.split(":")[0]) == (0, "intact")
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        connection.execute("UPDATE records SET kind = 'answer' WHERE seq = 2")
        connection.commit()
    bad = samebits("ledger", "fsck", "--url", url, "--json")
    assert bad.returncode == 1
    assert [(p["fault"], p["tenant"], p["seq"]) for p in json.loads(bad.stdout)["problems"]] == [("link", "default", 2)]


def test_export_import_and_fsck_of_a_file(url: str, tmp_path: Path) -> None:
    file, copy = tmp_path / "out.jsonl", f"sqlite:///{tmp_path}/copy.db"
    assert samebits("ledger", "export", "--url", url, "--out", file).returncode == 0
    assert samebits("ledger", "export", "--url", url).stdout.encode() == file.read_bytes()
    assert samebits("ledger", "import", file, "--url", copy).stdout == "3 records added, 0 were there already\n"
    assert samebits("ledger", "export", "--url", copy).stdout.encode() == file.read_bytes()
    checked = samebits("ledger", "fsck", "--file", file, "--anchors", tmp_path / "anchors")
    assert (checked.returncode, checked.stdout.split(":")[0]) == (0, "intact")
    data = file.read_bytes()
    file.write_bytes(data[:-20])
    torn = samebits("ledger", "import", file, "--url", f"sqlite:///{tmp_path}/third.db")
    assert (torn.returncode, "line 3, at byte" in torn.stdout) == (1, True)
    checked = samebits("ledger", "fsck", "--file", file, "--anchors", tmp_path / "anchors")
    assert checked.returncode == 1
    assert "line 3" in checked.stdout
    assert "tail: other 1" in checked.stdout
    file.write_bytes(data.replace(b"question 1", b"question 7"))
    assert "body: default 1" in samebits("ledger", "fsck", "--file", file).stdout


def test_prune_leaves_a_proof(url: str) -> None:
    done = samebits("ledger", "prune", "--url", url, "--before", "2001-09-09T01:46:42", "--reason", "test")
    assert done.stdout.splitlines() == [
        "default: 2 bodies removed, 1 tombstone added",
        "other: 0 bodies removed, 0 tombstones added",
    ]
    assert "3 pruned" not in samebits("ledger", "fsck", "--url", url).stdout
    assert "(2 pruned)" in samebits("ledger", "fsck", "--url", url).stdout
    for wrong in ("soon", "30x"):
        refused = samebits("ledger", "prune", "--url", url, "--before", wrong, "--reason", "test")
        assert (refused.returncode, "before" in refused.stderr) == (2, True)


def test_heads_can_be_anchored_by_hand(url: str, tmp_path: Path) -> None:
    noted = samebits("ledger", "anchor", "--url", url, "--to", tmp_path / "mine")
    assert noted.stdout.startswith("2 heads noted")
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        connection.execute("DELETE FROM records WHERE tenant = 'other'")
        connection.execute("DELETE FROM heads WHERE tenant = 'other'")
        connection.commit()
    assert samebits("ledger", "fsck", "--url", url).returncode == 0  # negative control
    found = samebits("ledger", "fsck", "--url", url, "--anchors", tmp_path / "mine")
    assert (found.returncode, found.stdout.split(":")[0]) == (1, "tail")


def test_wrong_input_is_said_in_a_line(tmp_path: Path) -> None:
    for arguments in (
        ("ledger", "fsck"),
        ("ledger", "fsck", "--url", f"sqlite:///{tmp_path}/none.db"),
        ("ledger", "list", "--url", "mysql://user:hunter2@host/db"),
        ("ledger", "import", tmp_path / "none", "--url", f"sqlite:///{tmp_path}/new.db"),
        ("ledger", "list"),
    ):
        result = samebits(*arguments)
        assert result.returncode == 2, arguments
        assert "Traceback" not in result.stderr
        assert "hunter2" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("list", "--limit", "-1"), "limit"),
        (("list", "--kind", "anwser"), "kind"),
        (("list", "--tenant", "defualt"), "tenant"),
        (("list", "--since", "9" * 30 + "d"), "since"),
        (("list", "--since", "0001-01-01"), "since"),
        (("export", "--tenant", "defualt"), "tenant"),
        (("prune", "--before", "1s", "--reason", "x", "--tenant", "defualt"), "tenant"),
        (("prune", "--before", "1s", "--reason", "\udcff"), "reason"),
    ],
)
def test_what_would_choose_nothing_by_mistake_is_refused(url: str, arguments: tuple[str, ...], field: str) -> None:
    ran = samebits("ledger", *arguments, "--url", url)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"samebits: {field}: ")
    with Ledger.open(url, readonly=True) as ledger:
        assert all(record.body is not None for record in ledger.records())


def test_pruning_a_ledger_that_is_not_there_makes_none(tmp_path: Path) -> None:
    ran = samebits(
        "ledger", "prune", "--url", f"sqlite:///{tmp_path}/typo.db", "--before", "1s", "--reason", "retention"
    )
    assert (ran.returncode, "there is no file" in ran.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [("ledger", "export", "--out"), ("ledger", "anchor", "--to"), ("replay", "--all", "--report")]
)
def test_nothing_is_written_into_the_ledger_that_is_not_a_record(
    url: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    database = tmp_path / "ledger.db"
    before = database.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(database)
    for out in (database, link, tmp_path / "ledger.db-wal"):
        ran = samebits(*command, out, "--url", url)
        assert (ran.returncode, "is the ledger itself" in ran.stderr) == (2, True), ran.stderr
    assert database.read_bytes() == before


def test_an_export_replaces_no_device(url: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as beside:
        read = beside.submit(pipe.read_bytes)
        assert samebits("ledger", "export", "--url", url, "--out", pipe).returncode == 0
        assert read.result(PATIENCE_S).decode() == samebits("ledger", "export", "--url", url).stdout
    assert pipe.is_fifo()
    assert not (tmp_path / "pipe.part").exists()


def change(tmp_path: Path, body: bytes) -> None:
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        connection.execute("UPDATE records SET body = ? WHERE tenant = 'default' AND seq = 1", (body,))
        connection.commit()


def test_a_record_that_was_changed_is_not_shown_as_what_was_recorded(url: str, tmp_path: Path) -> None:
    write_new(tmp_path / "keys")
    receipt = ("show", make_entry(1).id, "--url", url, "--receipt", "--key", tmp_path / "keys" / PRIVATE_NAME)
    assert samebits("ledger", *receipt).returncode == 0  # negative control
    assert "changed" not in samebits("ledger", "list", "--url", url).stdout
    for body in (b"{}", b"no json", b'{"a":1}\n{"b":2}'):
        change(tmp_path, body)
        rows = samebits("ledger", "list", "--url", url).stdout.splitlines()
        assert ["changed since it was stored" in row for row in rows] == [True, False, False]
        for arguments in (receipt, receipt[:4]):
            ran = samebits("ledger", *arguments)
            assert (ran.returncode, ran.stdout, "was changed" in ran.stderr) == (2, "", True)
        exported = samebits("ledger", "export", "--url", url, "--out", tmp_path / "out.jsonl")
        assert exported.returncode == (0 if body == b"{}" else 2)  # what is JSON still is found in the export
    change(tmp_path, b"{}")
    samebits("ledger", "export", "--url", url, "--out", tmp_path / "out.jsonl")
    assert "body: default 1" in samebits("ledger", "fsck", "--file", tmp_path / "out.jsonl").stdout


def test_anchors_that_hold_nothing_are_no_check(url: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    ran = samebits("ledger", "fsck", "--url", url, "--anchors", empty)
    assert (ran.returncode, "holds no head" in ran.stderr) == (3, True)
    assert samebits("ledger", "fsck", "--url", url, "--anchors", tmp_path / "anchors").returncode == 0
