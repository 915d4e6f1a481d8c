"""Where the key goes, and where it does not; what is said when a first question breaks."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from samebits.audit.targets import Ask, HttpSpec, Reply
from samebits.audit.targets.http import HttpTarget
from samebits.errors import InputError, MeasurementError
from waiting import PATIENCE_S

from stub_server import Answer, Incoming, stub  # isort: skip

KEY = "sk-sentinel-5d0c77aa"
ASK = Ask(messages=({"role": "user", "content": "Say 1"},), max_tokens=8)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_KEY", KEY)


def replies(url: str, count: int, *, stream: bool = False, **fields: str) -> list[Reply]:
    ask_it = replace(ASK, stream=stream)

    async def ask() -> list[Reply]:
        target = HttpTarget(
            HttpSpec(name="t", url=url, model="stub", key_env="AUDIT_KEY", **fields), timeout=PATIENCE_S
        )
        try:
            await target.open((ask_it,), None)
            return [await target.ask(ask_it, contextlib.nullcontext()) for _ in range(count)]
        finally:
            await target.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("header", ["authorization", "api-key"])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirection_does_not_take_the_key_elsewhere(header: str, status: int) -> None:
    with stub(lambda incoming: Answer("yes")) as other:
        place = other.url.replace("127.0.0.1", "localhost") + "/v1/chat/completions?sig=secret"
        with (
            stub(lambda incoming: Answer(status=status, headers={"location": place})) as server,
            pytest.raises(InputError, match=f"HTTP {status}.*redirects to http://localhost") as error,
        ):
            replies(server.url, 0, key_header=header)
    assert len(server.requests) == 1, "the control"
    assert server.requests[0].headers[header].endswith(KEY), "the control"
    assert other.requests == []
    assert "secret" not in str(error.value)


def test_a_key_in_the_code_of_an_error_is_not_noted() -> None:
    def quotes(incoming: Incoming) -> Answer:
        code = f"bad_{incoming.headers['authorization']}"
        return Answer(status=400, extra={"code": code}) if incoming.number else Answer()

    with stub(quotes) as server:
        [reply] = replies(server.url, 1)
    assert reply.error == "HTTP 400 bad_Bearer [key]"


def test_a_key_is_found_before_a_message_is_cut() -> None:
    def quotes(incoming: Incoming) -> Answer:
        return Answer("x" * 290 + KEY, status=400) if incoming.number else Answer()

    with stub(quotes) as server:
        [reply] = replies(server.url, 1)
    assert reply.detail == "x" * 290 + "[key]"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_holds_the_key_is_not_kept(stream: bool) -> None:
    """Servers for tests like to answer with the headers they got."""

    def echoes(incoming: Incoming) -> Answer:
        said = incoming.headers["authorization"]
        return [Answer(), Answer(said), Answer(fingerprint=said), Answer(" ".join(said))][min(incoming.number, 3)]

    with stub(echoes) as server:
        found = replies(server.url, 3, stream=stream)
    assert [reply.error for reply in found] == ["the answer holds the key, so it is not kept"] * 2 + [None]
    assert all(KEY not in repr(reply) for reply in found)
    assert found[-1].text == " ".join(f"Bearer {KEY}"), "the control: what only looks like it is an answer"


def test_passwords_of_netrc_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("default login me password hunter2hunter2")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with stub(lambda incoming: Answer("yes")) as server:
        [reply] = replies(server.url, 1, key_header="api-key")
    assert reply.text == "yes"
    assert all("authorization" not in request.headers for request in server.requests)


def test_what_broke_a_first_question_is_said() -> None:
    with (
        stub(lambda incoming: Answer("yes yes", drop="within")) as server,
        pytest.raises(MeasurementError, match=r"first question: the connection broke within the answer \(.+\)$"),
    ):
        replies(server.url, 1)
