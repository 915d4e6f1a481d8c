"""An audit that is stopped in the middle, by its user or a full disk, says how to go on and pays for nothing twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))

from stub_server import Answer, Incoming, Stub, stub

from samebits.audit.journal import read_journal
from samebits.audit.run import LOST
from samebits.cli import main
from waiting import PATIENCE_S, wait_until

RUNS, IN_FLIGHT = 20, 4
OPTIONS = [
    "--prompts",
    "p.jsonl",
    "--runs",
    str(RUNS),
    "--concurrency",
    str(IN_FLIGHT),
    "--orders",
    "1",
    "--times",
    "1",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lines = [{"id": f"p{i}", "messages": [{"role": "user", "content": f"Say {i}"}]} for i in range(3)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def here(*arguments: str) -> int:
    """Runs the command in this process; returns its exit code."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["samebits", "audit", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


# The command line, on a disk that has room for files of so many bytes.
SMALL_DISK = """
import resource, sys
from samebits.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
main()
"""


def start(server: Stub, *arguments: str, program: tuple[str, ...] = ("-m", "samebits")) -> subprocess.Popen[str]:
    command = [sys.executable, *program, "audit", server.url, *OPTIONS, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def paid_once(server: Stub, lost: int) -> None:
    """Whether each request of the plan was sent once, but for those that were lost and may have left or not."""
    asked = Counter(body["messages"][0]["content"] for body in server.asked)
    plan = 3 * RUNS
    assert plan - lost <= asked.total() - 1 <= plan  # one is the first question


def test_ctrl_c_keeps_what_was_answered_and_says_how_to_go_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered = 20
    with stub(lambda incoming: Answer("yes", delay=0 if incoming.number < answered else 10 * PATIENCE_S)) as server:
        process = start(server, "--journal", "a journal")
        wait_until(lambda: process.poll() is not None or len(server.requests) == answered + IN_FLIGHT)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        assert "--journal 'a journal' goes on" in said
        kept = len(list(read_journal(folder / "a journal")))
        assert kept == answered - 1, "all but the first question"
        answered = 1000
        assert here(server.url, *OPTIONS, "--journal", "a journal") == 0
    assert f"{kept} requests have an outcome" in capsys.readouterr().out
    observations = list(read_journal(folder / "a journal"))
    assert len(observations) == 3 * RUNS
    assert sum(o.error == LOST for o in observations) == IN_FLIGHT
    paid_once(server, 0)


def test_a_full_disk_ends_it_with_3_and_it_goes_on_later(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The line of a long answer is longer than what is left, so that it is cut short wherever the disk ends.
    with stub(lambda incoming: Answer("yes" if incoming.number < 4 else "yes " * 400)) as server:
        process = start(server, "--journal", "j", program=("-c", SMALL_DISK, "8192"))
        said, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 3, errors
        assert "samebits: the journal cannot be written" in errors
        assert "Traceback" not in errors
        assert "--journal j goes on" in said
        assert (folder / "j").stat().st_size <= 8192
        assert here(server.url, *OPTIONS, "--journal", "j") == 0
    assert "was cut short by a crash" in capsys.readouterr().out
    observations = list(read_journal(folder / "j"))
    assert len(observations) == 3 * RUNS
    # The one whose line was cut short is asked again where not even its leaving could be noted.
    paid_once(server, sum(o.error == LOST for o in observations))


def test_a_journal_of_another_plan_is_refused_and_left_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub(lambda incoming: Answer("yes")) as server:
        assert here(server.url, *OPTIONS, "--journal", "j") == 0
        before = (folder / "j").read_bytes()
        asked = len(server.requests)
        assert here(server.url, *OPTIONS, "--journal", "j", "--max-tokens", "9") == 2
        assert len(server.requests) == asked
    assert (folder / "j").read_bytes() == before
    assert "belongs to another plan" in capsys.readouterr().err


def test_a_first_question_that_is_refused_binds_nobody(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The remedy changes the plan, and the same journal is taken all the same: there is nothing in it."""

    def picky(incoming: Incoming) -> Answer:
        if "temperature" in incoming.body:
            return Answer("only the default", status=400, extra={"param": "temperature"})
        return Answer("yes")

    with stub(picky) as server:
        assert here(server.url, *OPTIONS, "--journal", "j") == 2
        assert len(server.requests) == 1
        said = capsys.readouterr()
        assert "--own-sampling" in said.err
        assert "goes on" not in said.out
        assert not (folder / "j").exists()
        assert here(server.url, *OPTIONS, "--journal", "j", "--own-sampling") == 0
        # The refusal of the second of two targets comes before the first is asked for more than an answer.
        with stub(lambda incoming: Answer("yes")) as other:
            entries = [{"target": other.url, "name": "a"}, {"target": server.url, "name": "b"}]
            (folder / "t.yaml").write_text(json.dumps({"targets": entries}))
            assert here("t.yaml", *OPTIONS, "--journal", "k") == 2
            assert len(other.requests) == 1
            assert not (folder / "k").exists()
            assert here("t.yaml", *OPTIONS, "--journal", "k", "--own-sampling") == 0
