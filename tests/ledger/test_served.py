"""Servers over a ledger that cannot be written, that others write too, or whose log tells everything."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from tests.api.live import error_of
from tests.small_model import write_model

from samebits.ledger import Ledger
from samebits.ledger.fsck import check
from waiting import PATIENCE_S, wait_until

CHAT = "/chat/completions"


class Process:
    """A server in a process of its own.

    Attributes:
        said: what it wrote to standard error after its first line; complete once it has ended.
    """

    def __init__(self, config: Path) -> None:
        command = [sys.executable, "-m", "samebits", "serve", "--config", str(config)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert " at http://" in line, line + self.process.stderr.read()
        self.http = httpx.Client(base_url=line.split(" at ")[1].split()[0], timeout=PATIENCE_S)
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said = self.process.stderr.read()

    def ask(self, content: str, **body: Any) -> httpx.Response:
        messages = [{"role": "user", "content": content}]
        return self.http.post(CHAT, json={"model": "m", "messages": messages, "max_tokens": 3, **body})

    def leave(self, content: str) -> None:
        """Asks as a client that goes away before its answer is there; returns when the server has noticed."""
        address = self.http.base_url

        def noticed() -> bool:
            return f'route="/v1{CHAT}",status="499"' in self.http.get(address.join("/metrics")).text

        assert not noticed()
        client = http.client.HTTPConnection(address.host, address.port)
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        client.request("POST", f"/v1{CHAT}", json.dumps(body), {"content-type": "application/json"})
        client.close()
        wait_until(noticed)

    def limit_files(self, size: int) -> None:
        """A limit on the size of its files stands for a disk that is full."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def ready(self) -> tuple[int, dict[str, str]]:
        response = self.http.get(str(self.http.base_url).removesuffix("/v1/") + "/ready")
        return response.status_code, response.json()["faults"]

    def until_ready(self) -> None:
        wait_until(lambda: self.ready()[0] == 200, "it never became ready")

    def end(self) -> int:
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@contextlib.contextmanager
def served(tmp_path: Path, url: str, **ledger: Any) -> Iterator[Process]:
    folder = tmp_path / "model"
    if not folder.exists():
        folder.mkdir()
        write_model(folder)
    config = tmp_path / "samebits.yaml"
    keys = {"models": {"m": {"path": str(folder), "profile": "fp32"}}, "port": 0, "ledger": {"url": url, **ledger}}
    config.write_text(json.dumps(keys))
    process = Process(config)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.end()


def test_a_full_disk_is_said_to_clients_and_ends_when_it_has_room(tmp_path: Path, sqlite_url: str) -> None:
    anchors = tmp_path / "anchors"
    with served(tmp_path, sqlite_url, anchors=str(anchors)) as server:
        assert server.ready() == (200, {})
        acknowledged = {server.ask(str(i)).json()["id"] for i in range(3)}
        server.limit_files(4096)
        for _ in range(2):
            refused = server.ask("no room")
            error = error_of(refused, 503)
            assert error["code"] == "ledger_unavailable"
            assert "the ledger cannot be written" in error["message"]
            assert refused.headers["retry-after"]
        assert error_of(server.ask("wrong", temperature=9), 400)["param"] == "temperature"
        assert error_of(server.ask("wrong", no_such_field=1), 400)["param"] == "no_such_field"
        assert server.ready() == (503, {"ledger": refused.json()["error"]["message"]})
        streamed = server.ask("no room", stream=True)
        assert "ledger_unavailable" in streamed.text
        assert "[DONE]" not in streamed.text
        server.leave("nobody is there to be told")
        server.limit_files(resource.RLIM_INFINITY)
        server.until_ready()  # by itself: nobody was sent here meanwhile
        again = [server.ask(str(i)) for i in range(3)]
        assert [response.status_code for response in again] == [200, 200, 200]
        acknowledged |= {response.json()["id"] for response in again}
        server.limit_files(0)  # the last heads cannot be noted
        assert server.end() == 0
    assert "Traceback" not in server.said
    with Ledger.open(sqlite_url, readonly=True) as ledger:
        assert check(ledger, anchors).count == 0
        stored = {record.id for record in ledger.records() if record.kind == "answer"}
    assert acknowledged == stored


def test_two_servers_write_one_ledger(tmp_path: Path, url: str) -> None:
    with served(tmp_path, url) as one, served(tmp_path, url) as other, ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda i: (one, other)[i % 2].ask(f"{i}"), range(40)))
        assert {answer.status_code for answer in answers} == {200}
    with Ledger.open(url, readonly=True) as ledger:
        assert check(ledger).count == 0
        stored = [record.id for record in ledger.records()]
    assert sorted(stored) == sorted(answer.json()["id"] for answer in answers)


def test_patterns_of_the_configuration_are_used(tmp_path: Path, sqlite_url: str) -> None:
    with served(tmp_path, sqlite_url, privacy="redacted", patterns={"case": "CASE-[0-9]+"}) as server:
        assert server.ask("about CASE-4711, to ada@example.org").status_code == 200
    with Ledger.open(sqlite_url, readonly=True) as ledger:
        [record] = ledger.records()
    stored = (record.body or b"").decode()
    assert "about [redacted:case], to ada@example.org" in stored  # the standard ones are replaced
    assert "4711" not in stored
