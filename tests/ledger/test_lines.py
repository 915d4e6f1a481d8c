"""Export and import: the same bytes and hashes elsewhere, torn ends named, nothing that does not fit let in."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ledger.conftest import make_entry

from samebits.errors import InputError
from samebits.ledger import Ledger
from samebits.ledger.fsck import Report, check, check_chain
from samebits.ledger.lines import Lines, from_line, import_lines, to_line
from samebits.ledger.tombstone import prune


def exported(ledger: Ledger, path: Path) -> bytes:
    data = b"".join(map(to_line, ledger.records()))
    path.write_bytes(data)
    return data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Five records of two tenants, one with numbers that are hard to keep; the first is pruned."""
    path = tmp_path / "export.jsonl"
    with Ledger.open(f"sqlite:///{tmp_path}/source.db") as ledger:
        ledger.append([make_entry(1), make_entry(2, tenant='ü"😀')])
        prune(ledger, before_ns=2**62, reason="test", tenant="default")
        ledger.append([make_entry(3, seed=2**63 - 1, answer={"x": [1e20, 1e-7, 5e-324, -0.0, 1e300, "\x00\u2028é😀"]})])
        exported(ledger, path)
    return path


def test_a_ledger_is_the_same_after_export_and_import(url: str, file: Path, tmp_path: Path) -> None:
    with Ledger.open(url) as ledger:
        result = import_lines(ledger, file)
        assert (result.added, result.present, result.torn) == (4, 0, None)
        assert exported(ledger, tmp_path / "again.jsonl") == file.read_bytes()
        assert check(ledger).count == 0
        assert import_lines(ledger, file).present == 4
        [record] = ledger.append([make_entry(4)])
        assert record.seq == 4
        assert check(ledger).count == 0


def test_an_import_goes_on_where_a_chain_ends(file: Path, tmp_path: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_bytes(b"".join(lines[:2]))
    with Ledger.open(f"sqlite:///{tmp_path}/copy.db") as ledger:
        assert import_lines(ledger, tmp_path / "some.jsonl").added == 2
        result = import_lines(ledger, file)
        assert (result.added, result.present) == (2, 2)
        assert exported(ledger, tmp_path / "again.jsonl") == file.read_bytes()


def test_a_line_gives_the_record_back(file: Path) -> None:
    for line in file.read_bytes().splitlines(keepends=True):
        assert to_line(from_line(line)) == line


def test_an_export_cut_at_any_byte_keeps_all_whole_records(file: Path, tmp_path: Path) -> None:
    """C09: the torn end is told with its place, and everything before it is read."""
    data = file.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    last = ends[-2]
    for size in [*range(last, len(data), 13), len(data) - 2, len(data) - 1, len(data)]:
        path = tmp_path / "cut.jsonl"
        path.write_bytes(data[:size])
        lines = Lines(path)
        found = list(lines)
        whole = size >= len(data) - 1 or size == last  # the newline alone may be missing
        assert len(found) == (4 if size >= len(data) - 1 else 3)
        assert (lines.torn is None) == whole
        if lines.torn is not None:
            assert (lines.torn.line, lines.torn.position, lines.torn.size) == (4, last, size - last)
        report = Report()
        check_chain(report, found[0].tenant, [r for r in found if r.tenant == found[0].tenant])
        assert report.count == 0


@pytest.mark.parametrize(
    ("old", "new"), [(b"question 3", b"question 4"), (b'"seq":3', b'"seq":4'), (b"chatcmpl", b"chatcmpm")]
)
def test_a_changed_line_is_not_let_in(file: Path, tmp_path: Path, old: bytes, new: bytes) -> None:
    data = file.read_bytes()
    assert old in data
    (tmp_path / "bad.jsonl").write_bytes(data.replace(old, new))
    with Ledger.open(f"sqlite:///{tmp_path}/copy.db") as ledger:
        with pytest.raises(InputError, match="not what its hash says"):
            import_lines(ledger, tmp_path / "bad.jsonl")
        assert check(ledger).count == 0


def test_what_does_not_follow_is_not_let_in(file: Path, tmp_path: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    (tmp_path / "late.jsonl").write_bytes(b"".join(lines[1:]))
    with Ledger.open(f"sqlite:///{tmp_path}/copy.db") as ledger:
        with pytest.raises(InputError, match="does not follow record 0"):
            import_lines(ledger, tmp_path / "late.jsonl")
        ledger.append([make_entry(9)])
        with pytest.raises(InputError, match="is another one here"):
            import_lines(ledger, file)
        assert [head.seq for head in ledger.heads().values()] == [1]


@pytest.mark.parametrize("line", [b"x\n", b"[]\n", b"{}\n", b'{"ledger":"samebits-ledger-1"}\n', b"\xff\n"])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "bad.jsonl").write_bytes(line)
    with pytest.raises(InputError, match="line 1, at byte 0"):
        list(Lines(tmp_path / "bad.jsonl"))
