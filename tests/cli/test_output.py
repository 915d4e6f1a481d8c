"""Where output goes wrong: exit code 1 is kept for a difference, and nothing is lost in silence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import PATIENCE_S

FULL = "standard output: No space left on device"
GENERATE = "generate smollm2 --prompt Once --max-tokens 3"
DEMO = "demo --runs 6 --max-tokens 6 --profile fp32"


def shell(line: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a line of bash, in which $S is samebits, and file 9 a pipe that nobody reads any more; the exit code is
    that of the first command of a pipe.
    """
    script = f"S='{sys.executable} -m samebits'; exec 9> >(true); wait $!; {line}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["/bin/bash", "-c", script], capture_output=True, timeout=PATIENCE_S, env=variables or None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("$S info >&9", ""),
        ("$S --help >&9", ""),
        ("$S info >/dev/full", FULL),
        ("$S info >&-", "standard output: Bad file descriptor"),
        ("$S info --help >&-", "standard output: Bad file descriptor"),
        ("$S info --nope", "No such option"),
        ("$S demo --runs x", "--runs"),
        ("$S info --nope 2>/dev/full", ""),
        ("$S info --nope 2>&-", ""),
        ("$S", "Usage: samebits"),
    ],
)
def test_a_failed_output_or_usage_is_exit_code_2(line: str, said: str) -> None:
    done = shell(line)
    message = done.stderr.decode()
    assert done.returncode == 2, message
    assert said in message
    assert "Traceback" not in message
    assert "Exception ignored" not in message
    if not said:
        assert message == ""


@pytest.mark.parametrize("module", ["typer", "samebits.cli.app", "numpy"])
def test_an_interrupt_while_modules_are_loaded_leaves_no_traceback(module: str) -> None:
    program = f"""
import sys, samebits.cli
class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
sys.argv[1:] = ["info"]
samebits.cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_control_the_same_commands_with_an_open_output() -> None:
    for line in ("$S info", "$S info | cat", "$S info --help", "$S info >/dev/null"):
        assert shell(line).returncode == 0


@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"$S {GENERATE} >&9", ""),
        (f"$S {GENERATE} >/dev/full", FULL),
        (f"$S {GENERATE} >&-", "standard output: Bad file descriptor"),
        (f"$S {GENERATE} --json >/dev/full", FULL),
        ("$S generate smollm2 --prompt - <&-", "prompt: standard input cannot be read"),
        ("printf '\\377' | $S generate smollm2 --prompt -; exit $?", "prompt: standard input cannot be read"),
    ],
)
def test_generate_without_a_place_to_read_or_write(line: str, said: str) -> None:
    done = shell(line)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr.decode()
    assert bool(said) == bool(done.stderr)
    assert b"Traceback" not in done.stderr


@pytest.mark.usefixtures("smollm2_path")
def test_output_and_input_are_utf8_in_any_locale() -> None:
    line = "printf 'Stra\\303\\237e \\342\\200\\224' | $S generate smollm2 --max-tokens 1 --prompt - --json"
    plain, ascii_only = shell(line, LC_ALL="C.UTF-8"), shell(line, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert plain.returncode == ascii_only.returncode == 0, ascii_only.stderr
    assert plain.stdout == ascii_only.stdout
    shown = shell("$S demo --runs 3 --max-tokens 3 --profile fp32", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert "┃" in shown.stdout.decode("utf-8") or shown.returncode == 3, shown.stderr


@pytest.mark.usefixtures("smollm2_path")
def test_the_demo_writes_its_file_though_nobody_reads_the_table(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    done = shell(f"$S {DEMO} --json {file} >&9")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert len(json.loads(file.read_text())["rows"]) == 2


@pytest.mark.usefixtures("smollm2_path")
def test_the_demo_shows_its_table_though_the_file_cannot_be_written() -> None:
    done = shell(f"$S {DEMO} --json /dev/full")
    assert done.returncode == 2
    assert b"json: '/dev/full' cannot be written (No space left on device)" in done.stderr
    assert "The same prompt" in done.stdout.decode()


@pytest.mark.parametrize("name", ["", ".", "missing/x.json", "x" * 300])
def test_a_file_that_cannot_be_written_is_refused_before_the_measurement(tmp_path: Path, name: str) -> None:
    done = shell(f"cd {tmp_path} && $S demo --model none --json '{name}'")  # the model, too, would be refused, later
    assert done.returncode == 2
    assert done.stderr.startswith(b"samebits: json: ")


def test_checking_a_file_leaves_it_as_it_is(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    for name in ("old.json", "new.json"):
        done = shell(f"cd {tmp_path} && $S demo --model none --json {name}")
        assert done.stderr.startswith(b"samebits: model: ")
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "old"
