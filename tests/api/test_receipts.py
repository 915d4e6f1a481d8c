"""GET /v1/receipts/{id}: signed, for those alone who got the answer; what it gives verifies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from live import NAME, Live, error_of, live

from samebits import LLM
from samebits.cli import _run
from samebits.errors import InputError
from samebits.ledger import Ledger
from samebits.ledger.keys import PRIVATE_NAME, PUBLIC_NAME, read_public, write_new
from samebits.ledger.receipt import verify
from small_model import write_model
from waiting import PATIENCE_S

CHAT = "/v1/chat/completions"
BODY = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "temperature": 1.0}
ADA, BOB = "key-of-ada-1", "key-of-bob-1"


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(write_model(tmp_path_factory.mktemp("model"))) as made:
        yield made


@pytest.fixture
def url(tmp_path: Path) -> str:
    write_new(tmp_path / "keys")
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def signing(llm: LLM, url: str, tmp_path: Path) -> Iterator[Live]:
    ledger = {"url": url, "receipt_key": str(tmp_path / "keys" / PRIVATE_NAME)}
    with live({NAME: llm}, keys=[f"ada {ADA}", f"bob {BOB}"], ledger=ledger) as server:
        yield server


def get(server: Live, id: str, key: str | None = ADA) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.get(f"{server.url}/v1/receipts/{id}", headers=headers, timeout=PATIENCE_S)


def ask(server: Live, path: str = CHAT, **body: Any) -> dict[str, Any]:
    got = httpx.post(
        server.url + path, json=BODY | body, headers={"authorization": f"Bearer {ADA}"}, timeout=PATIENCE_S
    )
    assert got.status_code == 200, got.text
    answer: dict[str, Any] = got.json()
    return answer


def test_a_receipt_of_an_answer_verifies(signing: Live, tmp_path: Path, url: str) -> None:
    answer = ask(signing)
    got = get(signing, answer["samebits"]["receipt_id"])
    assert (got.status_code, got.headers["content-type"]) == (200, "application/json")
    public = tmp_path / "keys" / PUBLIC_NAME
    receipt = verify(got.content, read_public(public))
    assert (receipt.record.id, receipt.record.tenant, receipt.route) == (answer["id"], "ada", CHAT)
    assert int(receipt.seed or 0) == answer["samebits"]["seed"]
    files = {name: tmp_path / f"{name}.json" for name in ("receipt", "request", "answer")}
    files["receipt"].write_bytes(got.content)
    files["request"].write_text(json.dumps(BODY))
    files["answer"].write_text(json.dumps(answer))
    given = ["--key", str(public), "--request", str(files["request"]), "--answer", str(files["answer"]), "--url", url]
    assert _run(["verify", str(files["receipt"]), *given]) == 0
    # Negative control: of another answer, and with one bit changed.
    files["answer"].write_text(json.dumps(answer | {"created": 0}))
    assert _run(["verify", str(files["receipt"]), *given]) == 1
    files["receipt"].write_bytes(got.content.replace(b'"sig":"', b'"sig":"A', 1))
    assert _run(["verify", str(files["receipt"]), *given]) == 1


def test_a_receipt_is_for_those_who_got_the_answer(signing: Live) -> None:
    id = ask(signing)["id"]
    assert get(signing, id).status_code == 200
    assert error_of(get(signing, id, None), 401)["code"] == "invalid_api_key"
    others = error_of(get(signing, id, BOB), 404)
    assert others["code"] == "receipt_not_found"
    for unknown in ("chatcmpl-0", "a%00b", "%20", "x" * 300):
        assert error_of(get(signing, unknown), 404)["code"] == "receipt_not_found"
    # What is not there and what is another's look the same.
    assert others["message"].replace(id, "") == error_of(get(signing, "chatcmpl-0", BOB), 404)["message"].replace(
        "chatcmpl-0", ""
    )


def test_no_receipt_of_what_is_no_answer(signing: Live, url: str) -> None:
    id = ask(signing)["id"]
    wrong = BODY | {"messages": []}
    httpx.post(signing.url + CHAT, json=wrong, headers={"authorization": f"Bearer {ADA}"}, timeout=PATIENCE_S)
    with Ledger.open(url) as ledger:
        [error] = [record.id for record in ledger.records() if record.kind == "error"]
    assert error_of(get(signing, error), 404)["code"] == "receipt_not_found"
    assert _run(["ledger", "prune", "--url", url, "--before", "0s", "--reason", "a test"]) == 0
    assert "was pruned" in error_of(get(signing, id), 404)["message"]


def test_a_record_that_was_changed_is_signed_by_nobody(signing: Live, url: str) -> None:
    id = ask(signing)["id"]
    with Ledger.open(url) as ledger, ledger.engine.begin() as connection:
        connection.execute(sa.text("UPDATE records SET time_ns = time_ns + 1"))
    assert error_of(get(signing, id), 503)["code"] == "ledger_unavailable"


@pytest.mark.parametrize("missing", ["url", "receipt_key", "receipts"])
def test_a_server_that_signs_none_says_what_is_missing(llm: LLM, url: str, tmp_path: Path, missing: str) -> None:
    key = str(tmp_path / "keys" / PRIVATE_NAME)
    ledger = {"url": {}, "receipt_key": {"url": url}, "receipts": {"url": url, "receipt_key": key, "receipts": False}}
    with live({NAME: llm}, ledger=ledger[missing]) as server:
        id = server.chat(max_tokens=2)["id"]
        error = error_of(get(server, id), 404)
    assert (error["code"], f"ledger.{missing} " in error["message"]) == ("receipts_off", True)


def test_a_key_that_cannot_be_read_is_told_at_the_start(llm: LLM, url: str, tmp_path: Path) -> None:
    for path in (tmp_path / "none.pem", tmp_path / "keys" / PUBLIC_NAME):
        with pytest.raises(InputError) as caught, live({NAME: llm}, ledger={"url": url, "receipt_key": str(path)}):
            pass
        assert caught.value.field == "ledger.receipt_key"
