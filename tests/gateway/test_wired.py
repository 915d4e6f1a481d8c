"""What the configuration says of records is what stands in them: environment, patterns, date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stub import Stub, chat

from samebits.errors import InputError
from samebits.ledger import Ledger, environment_id

CHAT = "/v1/chat/completions"


def recorded(serve: Any, tmp_path: Path, name: str, content: str, **ledger: Any) -> dict[str, Any]:
    """The record of an answer that repeats the question."""
    url = f"sqlite:///{tmp_path}/{name}.db"
    server = serve(ledger={"url": url} | ledger, date="2031-05-06")
    assert server.post(CHAT, model="m", messages=[{"role": "user", "content": content}]).status_code == 200
    with Ledger.open(url, readonly=True) as found:
        [record] = found.records()
    body: dict[str, Any] = json.loads(record.body or b"")
    return body


def test_records_name_the_environment_and_the_date(serve: Any, upstream: Stub, tmp_path: Path) -> None:
    body = recorded(serve, tmp_path, "a", "Hi")
    assert body["environment"] == environment_id()
    assert environment_id().startswith("sha256:")
    assert body["date"] == "2031-05-06"


def test_patterns_of_the_configuration_redact_questions_and_answers(serve: Any, upstream: Stub, tmp_path: Path) -> None:
    upstream.answer = lambda asked: chat(asked.last)
    content = "patient-4711 writes to a@example.org"

    def texts(body: dict[str, Any]) -> list[str]:
        return [body["request"]["messages"][0]["content"], body["answer"]["choices"][0]["message"]["content"]]

    own = recorded(serve, tmp_path, "own", content, privacy="redacted", patterns={"patient": r"patient-\d+"})
    assert texts(own) == ["[redacted:patient] writes to a@example.org"] * 2, "they replace the standard ones"
    # Negative control: without them it is the standard ones, and under full none.
    assert (
        texts(recorded(serve, tmp_path, "standard", content, privacy="redacted"))
        == ["patient-4711 writes to [redacted:email]"] * 2
    )
    assert texts(recorded(serve, tmp_path, "full", content)) == [content] * 2
    assert b"patient-4711" not in (tmp_path / "own.db").read_bytes()


@pytest.mark.parametrize("patterns", [{"a": "("}, {"a b": "x"}, {"a": "x*"}])
def test_a_pattern_that_is_none_is_told_at_the_start(serve: Any, tmp_path: Path, patterns: dict[str, str]) -> None:
    ledger = {"url": f"sqlite:///{tmp_path}/ledger.db", "privacy": "redacted", "patterns": patterns}
    with pytest.raises(InputError) as caught:
        serve(ledger=ledger)
    assert str(caught.value.field).startswith("ledger.patterns")
