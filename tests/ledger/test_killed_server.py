"""kill -9 of a server under load: every answer that a client got is in the ledger, and the next server starts."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from tests.ledger.conftest import new_database
from tests.small_model import write_model

from samebits.ledger import Ledger
from samebits.ledger.fsck import check
from waiting import PATIENCE_S

CLIENTS = 4


def start(config: Path) -> tuple[subprocess.Popen[str], str]:
    """A server, and its address."""
    command = [sys.executable, "-m", "samebits", "serve", "--config", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if " at http://" in line:
            return process, line.split(" at ")[1].split()[0]
    raise AssertionError(f"the server did not start: {process.wait()}")


def kill_one(config: Path, answers: int, seed: int) -> dict[str, str]:
    """Serves until so many answers are complete, and kills the server; id → text of all that were complete."""
    process, address = start(config)
    got: dict[str, str] = {}
    enough = threading.Event()

    def ask(client: int) -> None:
        draw = random.Random(f"{seed} {client}")
        with httpx.Client(base_url=address, timeout=PATIENCE_S) as session:
            while True:
                body = {
                    "model": "m",
                    "messages": [{"role": "user", "content": f"{draw.random()}"}],
                    "max_tokens": draw.randrange(1, 12),
                    "stream": draw.random() < 0.5,
                }
                try:
                    answer = session.post("/chat/completions", json=body)
                except httpx.HTTPError:
                    return  # it was killed
                assert answer.status_code == 200, answer.text
                events = answer.text.removeprefix("data: ").split("\n\ndata: ")
                if body["stream"] and events[-1].strip() != "[DONE]":
                    return
                first = json.loads(events[0])
                got[first["id"]] = answer.text
                if len(got) >= answers:
                    enough.set()

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    assert enough.wait(PATIENCE_S), "not exercised: no answers"
    process.kill()
    for thread in threads:
        thread.join()
    process.communicate()
    return got


def survive(tmp_path: Path, url: str, rounds: int) -> int:
    """Kills servers; returns how many answers were complete, all of which are in the ledger."""
    (tmp_path / "model").mkdir()
    config = tmp_path / "samebits.yaml"
    model = {"path": write_model(tmp_path / "model"), "profile": "fp32"}
    config.write_text(json.dumps({"models": {"m": model}, "port": 0, "ledger": {"url": url}}))
    draw, complete = random.Random(5), set[str]()
    for i in range(rounds):
        complete |= kill_one(config, draw.randrange(1, 30), i).keys()
        with Ledger.open(url, readonly=True) as ledger:
            report = check(ledger)
            assert report.count == 0, report.problems
            stored = {record.id for record in ledger.records() if record.kind == "answer"}
        assert complete <= stored
    return len(complete)


def test_killed_servers_lose_no_answer(tmp_path: Path, sqlite_url: str) -> None:
    assert survive(tmp_path, sqlite_url, 2) >= 2


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_servers_lose_no_answer_200_times(
    tmp_path: Path, sqlite_url: str, kind: str, request: pytest.FixtureRequest
) -> None:
    url = sqlite_url if kind == "sqlite" else new_database(request.getfixturevalue("postgres"))
    assert survive(tmp_path, url, 200) > 1000
