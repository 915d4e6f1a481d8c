"""``samebits doctor`` in processes that set things early, late and wrongly; ``samebits advise``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from waiting import PATIENCE_S

NEEDS = "use_case: extraction\nregulation: audited\nlatency: batch\nbudget: cpu\ncreativity: none\n"


def samebits(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    threads = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "GOTO", "MKL", "BLIS")]
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHASHSEED", *threads)} | variables
    command = [sys.executable, "-m", "samebits", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=env)


def findings(ran: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(ran.stdout)["findings"]}


@pytest.mark.parametrize(
    ("script", "variables", "state", "code"),
    [
        ("", {}, "hazard", 0),
        ("import os; os.environ['PYTHONHASHSEED'] = '2'", {}, "ineffective", 1),
        ("", {"PYTHONHASHSEED": "2"}, "ok", 0),
        ("import os; os.environ['PYTHONHASHSEED'] = '3'", {"PYTHONHASHSEED": "2"}, "ineffective", 1),
    ],
)
def test_the_seed_of_hashes_is_judged_by_what_it_does(
    tmp_path: Path, script: str, variables: dict[str, str], state: str, code: int
) -> None:
    (tmp_path / "script.py").write_text(script)
    ran = samebits("doctor", "--json", "--after", str(tmp_path / "script.py"), **variables)
    assert ran.returncode == code, ran.stderr
    assert findings(ran)["PYTHONHASHSEED"]["state"] == state


def test_threads_set_after_numpy_are_without_effect(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor: one thread, whatever is set")
    late = "import numpy, os\nnumpy.ones((2, 2)) @ numpy.ones((2, 2))\nos.environ['OMP_NUM_THREADS'] = '1'\n"
    (tmp_path / "script.py").write_text(late)
    ran = samebits("doctor", "--json", "--after", str(tmp_path / "script.py"))
    assert ran.returncode == 1, ran.stderr
    assert findings(ran)["OMP_NUM_THREADS"]["state"] == "ineffective"
    early = samebits("doctor", "--json", OMP_NUM_THREADS="1")
    assert findings(early)["OMP_NUM_THREADS"]["state"] == "ok"


def test_people_get_a_table_and_the_tests_of_bits() -> None:
    ran = samebits("doctor", COLUMNS="160")
    assert ran.returncode == 0, ran.stderr
    assert "numpy" in ran.stdout
    assert "a row alone and in a batch" in ran.stdout


def test_a_home_that_cannot_be_used_and_no_programs_are_no_obstacle(tmp_path: Path) -> None:
    """As in a container with a read-only file system: nothing is written, and no tool is called."""
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    ran = samebits("doctor", "--json", HOME=str(home), PATH="", TMPDIR=str(home))
    assert ran.returncode == 0, ran.stderr
    assert list(home.iterdir()) == []
    assert json.loads(ran.stdout)["facts"]["gpus"] == [] or Path("/proc/driver/nvidia").exists()


def test_a_script_may_print_and_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("print('not JSON')")
    (tmp_path / "script.py").write_text("import neighbour")
    ran = samebits("doctor", "--json", "--after", str(tmp_path / "script.py"))
    assert ran.returncode == 0, ran.stderr
    assert "PYTHONHASHSEED" in findings(ran)
    assert "not JSON" in ran.stderr


def test_a_script_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("1 / 0")
    for name in ("script.py", "no-such.py"):
        ran = samebits("doctor", "--after", str(tmp_path / name))
        assert ran.returncode == 2
        assert ran.stderr.startswith("samebits: after"), ran.stderr
        assert "Traceback" not in ran.stderr


def test_advice_comes_with_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "needs.yaml").write_text(NEEDS)
    config = tmp_path / "samebits.yaml"
    ran = samebits("advise", str(tmp_path / "needs.yaml"), "--write", str(config))
    assert ran.returncode == 0, ran.stderr
    assert "level portable" in ran.stdout
    assert "profile: fp32" in config.read_text()
    again = samebits("advise", str(tmp_path / "needs.yaml"), "--write", str(config))
    assert again.returncode == 2
    assert again.stderr.startswith("samebits: write")


def asked(typed: str) -> subprocess.CompletedProcess[str]:
    """`samebits advise --json` at a terminal where this is typed, and then the end of input."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{typed}\x04".encode())
        command = [sys.executable, "-m", "samebits", "advise", "--json"]
        return subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=PATIENCE_S)
    finally:
        os.close(ours)
        os.close(theirs)


def test_questions_are_asked_until_they_are_answered() -> None:
    ran = asked("extraction\naudited\nnow\nbatch\ncpu\nnone\n")
    assert ran.returncode == 0, ran.stderr
    assert "Who may ask to see the same answer again" in ran.stderr
    assert "Please select one of the available options" in ran.stderr, "now is no latency"
    assert json.loads(ran.stdout)["rule"]["level"] == "portable"


def test_questions_that_nobody_answers_end_it() -> None:
    ran = asked("extraction\n")
    assert ran.returncode == 2
    assert "samebits: regulation: no answer came" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_answers_and_without_a_person_there_is_no_advice() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "samebits", "advise"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("samebits: needs")
