"""``samebits cache`` against a server that runs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.test_ledger import samebits

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))
sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from live import live
from stub import stub

from waiting import PATIENCE_S


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "samebits", "cache", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_stats_explain_and_clear(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    body = (
        '{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "x": 0.1234567890123456789}'
    )
    request.write_text(body, "utf-8")
    with stub() as upstream, live({}, models={"m": {"engine": "upstream", "base_url": upstream.url}}) as server:
        server.http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
        assert json.loads(run("stats", "--url", server.url).stdout)["entries"] == 1
        explained = json.loads(run("explain", str(request), "--url", f"{server.url}/v1").stdout)
        assert explained["key"].startswith("sha256:")
        assert explained["age"] is not None
        assert json.loads(run("clear", "--url", server.url).stdout) == {"cleared": 1}
        request.write_text('{"model": "n"}', "utf-8")
        refused = run("explain", str(request), "--url", server.url)
        assert (refused.returncode, "404" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    "arguments", [["explain"], ["stats", "file.json"], ["stats", "--url", "http://127.0.0.1:9"], ["explain", "none"]]
)
def test_what_is_wrong_is_said(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("samebits: ")
    assert "Traceback" not in done.stderr


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """The address of a server that says this to whoever comes, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def work() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        worker = threading.Thread(target=work)
        worker.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        worker.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"no HTTP\r\n\r\n", "cannot be asked"),
        (b"", "cannot be asked"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", "cannot be asked"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "cannot be asked"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "cannot be asked"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\n{", "answers 500"),
    ],
)
def test_what_is_no_server_of_ours_is_said(answer: bytes, said: str) -> None:
    with saying(answer) as url:
        ran = samebits("cache", "stats", "--url", url)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"samebits: url: {said}")


@pytest.mark.parametrize(
    "url", ["file:///etc", "ftp://127.0.0.1:1", "127.0.0.1:8000", "http://a b", "http://127.0.0.1:x"]
)
def test_what_is_no_address_is_said(url: str) -> None:
    ran = samebits("cache", "stats", "--url", url)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("samebits: url: ")


def test_keys_and_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key sees and clears what is its own; without a key nothing is said."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    request = tmp_path / "request.json"
    request.write_text(json.dumps(body))
    monkeypatch.setenv("KEY_OF_ADA", "key-of-ada-1")
    monkeypatch.setenv("KEY_OF_BOB", "key-of-bob-1")
    models = {"m": {"engine": "upstream"}}
    with stub() as upstream:
        models["m"]["base_url"] = upstream.url
        with live({}, models=models, keys=["ada key-of-ada-1", "bob key-of-bob-1"]) as server:
            ada_s = {"authorization": "Bearer key-of-ada-1"}
            assert (
                httpx.post(
                    f"{server.url}/v1/chat/completions", json=body, headers=ada_s, timeout=PATIENCE_S
                ).status_code
                == 200
            )
            none = samebits("cache", "stats", "--url", server.url)
            assert (none.returncode, "answers 401" in none.stderr) == (2, True)

            def asked(key: str, *arguments: str) -> Any:
                ran = samebits("cache", *arguments, "--url", server.url, "--key-env", key)
                assert ran.returncode == 0, ran
                return json.loads(ran.stdout)

            assert [asked(key, "stats")["own_entries"] for key in ("KEY_OF_ADA", "KEY_OF_BOB")] == [1, 0]
            ada, bob = (asked(key, "explain", str(request)) for key in ("KEY_OF_ADA", "KEY_OF_BOB"))
            assert ada["key"] != bob["key"]
            assert (ada["age"] is None, bob["age"] is None) == (False, True)
            assert asked("KEY_OF_BOB", "clear") == {"cleared": 0}
            assert asked("KEY_OF_ADA", "clear") == {"cleared": 1}
