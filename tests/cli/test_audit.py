"""``samebits audit`` as a user meets it: exit codes, files, a kill in the middle, and a key that is shown nowhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))

from stub_server import Answer, Incoming, Stub, stub

from samebits.audit.carry_out import Measured
from samebits.audit.journal import read_journal
from samebits.audit.result import evaluate
from samebits.audit.run import LOST, Progress
from samebits.audit.stub import Design, StubModel, simulate
from samebits.cli import main
from samebits.cli.audit import _show
from waiting import PATIENCE_S, wait_until

SENTINEL = "sk-sentinel-5d0c77aa"
SMALL = ["--runs", "4", "--concurrency", "1,4", "--times", "1", "--orders", "1", "--max-tokens", "8"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "samebits", "audit", *arguments]


def audit(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=folder,
        env={**os.environ, **variables},
    )


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    lines = [{"id": f"p{i}", "messages": [{"role": "user", "content": f"Say {i}"}]} for i in range(5)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_a_rate_just_below_one_is_not_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluate(list(simulate(StubModel(), Design())))
    views = tuple(replace(v, repeat=replace(v.repeat, value=0.999999)) for v in result.metrics.views)
    below = replace(result, metrics=replace(result.metrics, views=views))
    for found, shown in ((result, "│ 100% │"), (below, "│ >99.99% │")):
        _show(Console(width=160), Measured("stub", {}, {}, Progress()), found)
        text = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("│ text"))
        assert shown in " ".join(text.split())


def flaky(incoming: Incoming) -> Answer:
    return Answer("yes" if incoming.number % 3 else "no", seed=incoming.body.get("seed"))


def test_a_steady_target_passes_and_the_bound_is_said(tmp_path: Path, prompts: str) -> None:
    with stub(lambda incoming: Answer("yes")) as server:
        ran = audit(tmp_path, server.url, "--prompts", prompts, *SMALL, "--fail-under", "1", "--json", "out.json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "No difference seen" in ran.stdout
    assert "exact-repeat rate 1 is not below 1 (95% interval from 0.8558)" in ran.stdout
    assert "Seed: not verifiable." in ran.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    [target] = found["targets"]
    assert target["repeat_rate"] == 1
    assert target["known"]["model"] == "stub"
    assert found["plan"]["experiment"]["runs"] == 4
    assert (tmp_path / found["journal"]).is_file()


def test_a_flaky_target_fails_under_a_rate_and_only_then(tmp_path: Path, prompts: str) -> None:
    with stub(flaky) as server:
        failed = audit(tmp_path, server.url, "--prompts", prompts, *SMALL, "--fail-under", "1.0", "--journal", "j")
        again = audit(tmp_path, server.url, "--prompts", prompts, *SMALL, "--fail-under", "0.1", "--journal", "j")
        before = len(server.asked)
        only_measured = audit(tmp_path, server.url, "--prompts", prompts, *SMALL, "--journal", "j")
        assert len(server.asked) == before == 41
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "NOT reproducible" in failed.stdout
    assert "BELOW 1" in failed.stdout
    assert "Seed: forwarded." in failed.stdout
    assert (again.returncode, only_measured.returncode) == (0, 0)


def test_what_cannot_be_measured_exits_with_3(tmp_path: Path, prompts: str) -> None:
    with stub(flaky) as server:
        url = server.url
    gone = audit(tmp_path, url, "--prompts", prompts, *SMALL)
    assert gone.returncode == 3, gone.stderr
    assert "cannot be reached" in gone.stderr
    with stub(lambda incoming: Answer("no", status=400 if incoming.number else 200)) as server:
        refused = audit(tmp_path, server.url, "--prompts", prompts, *SMALL, "--fail-under", "0")
    assert refused.returncode == 3, refused.stderr
    for ran in (gone, refused):
        assert "Traceback" not in ran.stderr


def test_a_dry_run_shows_the_plan_and_sends_nothing(tmp_path: Path, prompts: str) -> None:
    with stub(flaky) as server:
        ran = audit(tmp_path, server.url, "--prompts", prompts, *SMALL, "--load", "both", "--dry-run",
                    "--price-in", "1", "--price-out", "2")  # fmt: skip
        assert server.requests == []
    assert ran.returncode == 0
    assert "80 measured" in ran.stdout
    assert "cost of" in ran.stdout
    said = " ".join(ran.stdout.replace("│", " ").split())
    # Token ids, log-probabilities, best tokens, seed; the name of the limit; 5, a limit that is named, and 1.
    assert "each part of it that a server does not take, at most 8; of 5 best tokens as many as it takes" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["prompts.jsonl"]


def test_a_key_is_sent_and_shown_nowhere(tmp_path: Path, prompts: str) -> None:
    def quotes(incoming: Incoming) -> Answer:
        said = f"Incorrect API key provided: {incoming.headers['authorization']}"
        return Answer(said, status=400) if incoming.number % 2 else Answer("yes")

    with stub(quotes) as server:
        ran = audit(
            tmp_path, server.url, "--prompts", prompts, *SMALL, "--key-env", "AUDIT_KEY", "--json", "out.json",
            "--html", "out.html", "--markdown", "out.md", "--junit", "out.xml",
            AUDIT_KEY=SENTINEL, PYTHONASYNCIODEBUG="1",
        )  # fmt: skip
        assert {r.headers["authorization"] for r in server.requests} == {f"Bearer {SENTINEL}"}
    assert ran.returncode == 0, ran.stderr
    assert "[key]" in ran.stdout, "the control: the server's words with the key in them were shown"
    assert SENTINEL not in ran.stdout + ran.stderr
    assert "[key]" in (tmp_path / "out.html").read_text("utf-8"), "the control"
    for path in tmp_path.iterdir():
        if path.suffix != ".jsonl" or path.name == "prompts.jsonl":
            assert SENTINEL not in path.read_text(), path
    [journal] = tmp_path.glob("samebits-audit-*.jsonl")
    assert SENTINEL not in journal.read_text()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["nonsense"], "target"),
        (["http://h", "--runs", "1"], "runs"),
        (["http://h", "--concurrency", "1,x"], "concurrency"),
        (["http://h", "--load", "some"], "load"),
        (["http://h", "--seeded", "some"], "seeded"),
        (["http://h", "--seeded", "none"], "seeded"),
        (["http://h", "--fail-under", "2"], "fail_under"),
        (["http://h", "--timeout", "0"], "timeout"),
        (["http://h", "--price-in", "1"], "price_in"),
        (["http://h", "--prompts", "no-such-file"], "prompts"),
        (["http://h", "--json", "no-such-folder/x"], "json"),
        (["http://h", "--key-env", "NO_SUCH_VARIABLE"], "key_env"),
        (["model:x", "--key-env", "HOME"], "key_env"),
        (["hf:no-such-folder"], "target"),
    ],
)
def test_wrong_input_names_the_field_and_exits_with_2(
    arguments: list[str],
    field: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["samebits", "audit", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"samebits: {field}")


def wait_for_requests(server: Stub, process: subprocess.Popen[bytes], count: int) -> None:
    wait_until(lambda: process.poll() is not None or len(server.requests) == count)
    assert process.poll() is None, "it ended before it could be killed"


def test_after_kill_9_nothing_that_was_paid_is_paid_again(tmp_path: Path, prompts: str) -> None:
    """Killed twice while four requests wait for an answer: each one of the plan gets an outcome, and is sent once."""
    options = [
        "--prompts",
        prompts,
        "--runs",
        "30",
        "--concurrency",
        "4",
        "--times",
        "1",
        "--orders",
        "1",
        "--journal",
        "j",
    ]
    answered = 0
    with stub(lambda incoming: Answer("yes", delay=0 if incoming.number < answered else 10 * PATIENCE_S)) as server:
        for answered in (25, 50):
            process = subprocess.Popen(command(server.url, *options), cwd=tmp_path, stdout=subprocess.DEVNULL)
            wait_for_requests(server, process, answered + 4)
            process.send_signal(signal.SIGKILL)
            process.wait()
        answered = 1000
        ran = audit(tmp_path, server.url, *options)
        asked = Counter(body["messages"][0]["content"] for body in server.asked)
    assert ran.returncode == 0, ran.stderr
    assert "Goes on with j" in ran.stdout
    observations = list(read_journal(tmp_path / "j"))
    assert len(observations) == len({(o.prompt_id, o.run) for o in observations}) == 150
    assert sum(o.error == LOST for o in observations) == 2 * 4
    probes = 1
    assert sum(asked.values()) - probes == 150, "a request was paid twice, or never sent"
