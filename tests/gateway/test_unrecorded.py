"""A ledger that does not take records: answers are not given, errors are, and /ready says why."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from stub import Stub, chat
from tests.gateway.conftest import ask

from samebits.gateway import gateway
from samebits.ledger import Ledger, pulse
from samebits.ledger.database import writing
from waiting import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"


def test_what_is_wrong_with_a_request_is_told_before_the_ledger_is_waited_for(
    serve: Any, upstream: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "RECORD_S", 0.05)
    monkeypatch.setattr(pulse, "FRESH_S", 0.0)
    monkeypatch.setattr(pulse, "PATIENCE_S", 0.05)
    url = f"sqlite:///{tmp_path}/ledger.db"
    server = serve(ledger={"url": url})
    answers: list[Any] = []
    with Ledger.open(url) as ledger:
        with writing(ledger.engine):
            refused = server.post(CHAT, **ask(determinism="batch"))
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "determinism")
            upstream.answer = lambda _: (418, {"error": {"message": "no"}})
            assert server.post(CHAT, **ask("b")).status_code == 418
            assert server.http.get("/ready").status_code == 503
            assert "did not take a write" in server.http.get("/ready").json()["faults"]["ledger"]
            assert server.http.get("/health").status_code == 200, "nothing that a restart would mend"
            # Negative control: an answer waits for its record.
            upstream.answer = lambda _: chat()
            thread = threading.Thread(target=lambda: answers.append(server.post(CHAT, **ask("c"))))
            thread.start()
            wait_until(lambda: upstream.calls == 2 and not upstream.open)
            thread.join(0.3)
            assert answers == []
        monkeypatch.setattr(pulse, "PATIENCE_S", PATIENCE_S)
        thread.join(PATIENCE_S)
        assert answers[0].status_code == 200
        assert server.http.get("/ready").status_code == 200
        assert "samebits_ledger_up 1.0" in server.http.get("/metrics").text
        kinds = [record.kind for record in ledger.records()]
    assert kinds == ["error", "error", "answer"], "the errors were recorded as soon as it could be done"
