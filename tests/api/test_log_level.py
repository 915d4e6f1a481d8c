"""What ``samebits serve`` says on standard error at each level; what was asked, and keys, at none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.stub import chat, stub

from samebits.cli import main

SECRETS = ("sentinel-question", "sentinel-answer", "sk-sentinel-own", "sentinel-upstream-key", "sentinel-path")


def said_at(tmp_path: Path, level: str | None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything on standard error of a server that answers, refuses and fails, and whose database is written."""
    question, answer, own, key, path = SECRETS
    monkeypatch.setenv("SENTINEL_KEY", key)
    (tmp_path / "keys.txt").write_text(f"ada {own}\n")
    with stub() as upstream:
        upstream.answer = lambda _: chat(answer)
        config: dict[str, Any] = {
            "models": {"m": {"engine": "upstream", "base_url": upstream.url, "api_key_env": "SENTINEL_KEY"}},
            "api_keys_file": str(tmp_path / "keys.txt"),
            "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
            "port": 0,
        }
        (tmp_path / "samebits.yaml").write_text(json.dumps(config))
        command = [sys.executable, "-m", "samebits", "serve", "--config", str(tmp_path / "samebits.yaml")]
        process = subprocess.Popen(
            command + ([] if level is None else ["--log-level", level]), stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        said = ""
        while " at http://" not in (line := process.stderr.readline()):
            assert line, said
            said += line
        url = line.split(" at ")[1].split("/v1")[0]
        body = {"model": "m", "messages": [{"role": "user", "content": question}], "temperature": 0}
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {own}"}, timeout=600) as client:
            for more in ({}, {}, {"stream": True, "seed": 1}, {"determinism": "portable"}):
                client.post("/v1/chat/completions", json=body | more)
            client.get(f"/{path}")
            client.get("/v1/models", headers={"authorization": "Bearer sk-sentinel-own-or-not"})
            for failure in (ConnectionResetError(), (500, {"error": f"{question} {key}"})):
                upstream.answer = lambda _, failure=failure: failure
                client.post("/v1/chat/completions", json=body | {"seed": 2})
        process.send_signal(signal.SIGTERM)
        said += line + process.communicate(timeout=600)[1]
    assert process.returncode == 0, said
    return said


def test_debug_tells_of_each_answer_and_of_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_at(tmp_path, "debug", monkeypatch)
    assert "DEBUG samebits.api.middleware: POST /v1/chat/completions: 200 after" in said
    assert ": by m, policy plain, cache hit" in said
    assert "INFO samebits.api.server: ending; 0 requests are under way" in said
    assert "WARNING samebits.gateway.upstream: m: attempt 2, after UnreachableError" in said
    assert [secret for secret in SECRETS if secret in said] == []


@pytest.mark.parametrize("level", [None, "error"])
def test_by_default_only_what_should_not_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str | None
) -> None:
    said = said_at(tmp_path, level, monkeypatch)
    assert "DEBUG" not in said
    assert "INFO" not in said
    assert ("WARNING samebits.gateway.upstream: m: attempt 2" in said) is (level is None)


def test_a_level_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["samebits", "serve", "smollm2", "--log-level", "loud"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "log_level" in capsys.readouterr().err
