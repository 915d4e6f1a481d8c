"""``samebits lock`` and ``samebits serve --locked``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_ledger import samebits
from tests.small_model import write_model

from samebits.api.app import load_models
from samebits.api.config import make_config, read_config
from samebits.cli.lock import check_locked
from samebits.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def config(tmp_path: Path, folder: Path) -> Path:
    path = tmp_path / "samebits.yaml"
    path.write_text(json.dumps({"models": {"m": {"path": str(folder), "profile": "fp32"}}, "port": 0}))
    return path


def test_a_lock_holds_and_explains_what_changed(config: Path, tmp_path: Path) -> None:
    lock, prompts = tmp_path / "samebits.lock", tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "one.txt").write_text("one")
    options = ("--config", config, "--file", lock, "--prompts", prompts)
    assert samebits("lock", *options).returncode == 0
    same = samebits("lock", *options, "--check")
    assert (same.returncode, same.stdout) == (0, "0 differences, 0 of them can move bits\n")
    keys = json.loads(config.read_text())
    keys["models"]["m"]["threads"] = 1
    config.write_text(json.dumps(keys | {"port": 1, "log_level": "debug", "determinism": "run"}))
    free = samebits("lock", *options, "--check")
    assert free.returncode == 1
    assert 'server.determinism: null locked, "run" now\n  moves no bit:' in free.stdout
    assert free.stdout.endswith("1 difference, 0 of them can move bits\n")  # threads, port and log level are not locked
    assert samebits("lock", *options, "--check", "--bits").returncode == 0
    keys["models"]["m"]["profile"] = "int8"
    config.write_text(json.dumps(keys))
    (prompts / "one.txt").write_text("two")
    moved = samebits("lock", *options, "--check", "--bits")
    assert moved.returncode == 1
    for what in ("models.m.profile", "models.m.fingerprint", "one.txt"):
        assert what in moved.stdout
    assert moved.stdout.endswith("3 differences, 3 of them can move bits\n")


def test_a_bill_and_a_containerfile_are_written_beside(config: Path, tmp_path: Path) -> None:
    files = tmp_path / "sbom.json", tmp_path / "Containerfile"
    ran = samebits(
        "lock", "--config", config, "--file", tmp_path / "l", "--sbom", files[0], "--containerfile", files[1]
    )
    assert ran.returncode == 0, ran
    assert json.loads(files[0].read_text())["bomFormat"] == "CycloneDX"
    assert "numpy==" in files[1].read_text()


def test_a_server_does_not_start_where_something_differs(config: Path, tmp_path: Path) -> None:
    lock = tmp_path / "samebits.lock"
    assert samebits("lock", "--config", config, "--file", lock).returncode == 0
    changed = json.loads(lock.read_text())
    changed["environment"]["python"] = "CPython 2.7"
    lock.write_text(json.dumps(changed))
    ran = samebits("serve", "--config", config, "--locked", lock)
    assert ran.returncode == 2
    assert "environment.python" in ran.stderr
    assert "1 difference from" in ran.stderr


def test_a_server_in_a_container_starts_where_no_bit_can_move(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """System, kernel and processor are not those of the machine on which the lock was made."""
    lock = tmp_path / "samebits.lock"
    assert samebits("lock", "--config", config, "--file", lock).returncode == 0
    settings = make_config(read_config(config))
    llms = load_models(settings)
    try:
        changed = json.loads(lock.read_text())
        changed["environment"] |= {"system": "linux elsewhere", "cpu": ["none"]}
        del changed["environment"]["packages"]["pip"]
        lock.write_text(json.dumps(changed))
        check_locked(lock, settings, llms, bits=True)
        assert "environment.system" in capsys.readouterr().err, "what differs is told all the same"
        with pytest.raises(InputError, match="3 differences"):
            check_locked(lock, settings, llms)
        changed["environment"]["packages"]["tokenizers"]["version"] = "0.0"
        lock.write_text(json.dumps(changed))
        with pytest.raises(InputError, match="1 difference"):
            check_locked(lock, settings, llms, bits=True)
    finally:
        for llm in llms.values():
            llm.close()
    alone = samebits("serve", "--config", config, "--locked-bits")
    assert (alone.returncode, "locked_bits" in alone.stderr) == (2, True)


def test_wrong_input_is_said_in_a_line(config: Path, tmp_path: Path) -> None:
    for arguments in (
        (),
        ("smollm2", "--config", config),
        ("--config", config, "--bits"),
        ("--config", config, "--check", "--file", tmp_path / "none"),
        ("--config", config, "--prompts", tmp_path / "none"),
        ("--config", config, "--profile", "fp32"),
        (tmp_path / "none",),
    ):
        ran = samebits("lock", *arguments)
        assert (ran.returncode, ran.stdout) == (2, ""), arguments


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policy": "critical"}, "server.policy"),
        ({"date": "2025-01-01"}, "server.date"),
        ({"tenants": {"default": {"policy": "critical"}}}, "server.tenants.default"),
        ({"policies": {"p": {"seed": 3}}}, "server.policies.p"),
        ({"models": {"m": {"failover": ["n"]}, "n": {}}}, "models.m.failover"),
        ({"models": {"m": {"stronger": "n"}, "n": {}}}, "models.m.stronger"),
        ({"models": {"other": {}}}, "models.other"),
        ({"models": {"m": {}, "u": {"engine": "upstream", "base_url": "http://127.0.0.1:1"}}}, "server.upstreams"),
    ],
)
def test_a_server_that_would_answer_otherwise_does_not_start(
    config: Path, folder: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    lock = tmp_path / "samebits.lock"
    assert samebits("lock", "--config", config, "--file", lock).returncode == 0
    assert samebits("lock", "--config", config, "--file", lock, "--check").returncode == 0  # negative control
    ours = {"path": str(folder), "profile": "fp32"}
    for keys in change.get("models", {}).values():
        if keys.get("engine") != "upstream":
            keys |= ours
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    ran = samebits("serve", "--config", config, "--locked", lock)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{said}: " in ran.stderr
    assert "from" in ran.stderr.splitlines()[-1].partition(" difference")[2]


def test_under_the_vendor_profile_threads_are_locked(config: Path, tmp_path: Path) -> None:
    lock = tmp_path / "samebits.lock"
    for profile, code in (("vendor", 1), ("fp32", 0)):
        keys = json.loads(config.read_text())
        keys["models"]["m"] |= {"profile": profile, "threads": 2}
        config.write_text(json.dumps(keys))
        assert samebits("lock", "--config", config, "--file", lock).returncode == 0
        keys["models"]["m"]["threads"] = 1
        config.write_text(json.dumps(keys))
        assert samebits("lock", "--config", config, "--file", lock, "--check", "--bits").returncode == code
