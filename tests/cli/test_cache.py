"""``samebits cache`` against a server that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))
sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from live import live
from stub import stub


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "samebits", "cache", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_stats_explain_and_clear(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    request.write_text(json.dumps(body), "utf-8")
    with stub() as upstream, live({}, models={"m": {"engine": "upstream", "base_url": upstream.url}}) as server:
        server.http.post("/v1/chat/completions", json=body)
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
