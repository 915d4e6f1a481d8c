"""Numbers are passed on with all their digits, in both directions, whole and in pieces, and from the cache."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from stub import Asked, Stub, chat

from samebits.cli import _run as run_verb
from samebits.errors import InputError
from samebits.gateway.json_body import read_answer, read_json, write_json
from samebits.gateway.key import form_of
from samebits.ledger import Ledger
from samebits.ledger.spelled import Spelled

CHAT = "/v1/chat/completions"
NUMBERS = (
    "18446744073709551616",
    "-9223372036854775809",
    "123456789012345678901234567890",
    "0.1000000000000000055511151231257827",
    "3.14159265358979323846264338327950288",
    "1234567890123456789.5",
    "1e-400",
    "-4.9e-324",
    "12345678901234567891e-3",
    "1e-99999999999999999999",
)
PLAIN = (
    "12345678901234567e3",
    "1",
    "-0.5",
    "18446744073709551615",
    "0.12345678806304932",
    "1e300",
    "5e-324",
    "2.50",
    "1E5",
)


def exact(text: str | bytes) -> Any:
    """A JSON text with each number as the decimal that it is."""
    return json.loads(text, parse_float=decimal, parse_int=Decimal)


def decimal(text: str) -> Decimal | str:
    return text if "e-9999" in text else Decimal(text)  # an exponent that Decimal does not take


@pytest.mark.parametrize("text", NUMBERS + PLAIN)
def test_a_number_keeps_its_value(text: str) -> None:
    for read in (read_answer, lambda data: read_json(data)):
        value = read(f'{{"a": [{text}], "b": "{text} 1.2.3.4.5.6.7.8.9.10.11"}}'.encode())
        assert exact(write_json(value)) == exact(f'{{"a": [{text}], "b": "{text} 1.2.3.4.5.6.7.8.9.10.11"}}')
        assert value["a"][0] == float(text) or isinstance(value["a"][0], int)


@pytest.mark.parametrize("text", NUMBERS)
def test_negative_control_the_faster_reader_changes_them(text: str) -> None:
    assert exact(orjson.dumps(orjson.loads(text))) != exact(text)


digits = st.text("0123456789", min_size=1, max_size=40)
numbers = st.builds(
    lambda sign, whole, part, power: f"{sign}{int(whole)}{part}{power}",
    st.sampled_from(["", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda d: f".{d}")),
    st.one_of(st.just(""), st.integers(-420, 250).map(lambda e: f"e{e}")),
)


@given(st.lists(numbers, max_size=5))
def test_any_numbers_keep_their_values(texts: list[str]) -> None:
    data = f"[{','.join(texts)}]".encode()
    assert exact(write_json(read_answer(data))) == exact(data)
    assert exact(write_json(read_json(data))) == exact(data)


def test_what_no_double_comes_near_is_refused() -> None:
    with pytest.raises(InputError, match="beyond all doubles") as caught:
        read_json(b'{"a": [0, 1e400]}')
    assert caught.value.field == "a[1]"
    assert read_json(b'["e400", 1e300]') == ["e400", 1e300]
    for data in (b"[1e400]", b"[NaN]", b'["\\ud800"]', b"[" + b"9" * 5000 + b"]", b"[" * 2000 + b"]" * 2000):
        with pytest.raises(ValueError):  # noqa: PT011  of several kinds
            read_answer(data)


@pytest.mark.parametrize("levels", [100, 300])
def test_a_deep_text_with_long_numbers_is_read(levels: int) -> None:
    """The faster writer goes 254 levels deep."""
    text = "[" * levels + NUMBERS[0] + "]" * levels
    assert str(read_answer(text.encode())) == text


def test_numbers_that_differ_have_different_keys() -> None:
    one, other = Spelled("0.1000000000000000055511151231257827"), Spelled("0.1000000000000000055511151231257828")
    assert one == other == 0.1
    assert form_of({"x": one}) != form_of({"x": other})
    assert form_of({"x": one}) != form_of({"x": 0.1})


@pytest.mark.parametrize("streams", [False, True])
def test_numbers_are_forwarded_as_they_came(serve: Any, upstream: Stub, tmp_path: Path, streams: bool) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    server = serve(ledger={"url": url})
    extra = "[" + ",".join(NUMBERS) + "]"

    def answer(asked: Asked) -> Any:
        text = json.dumps(chat(x_numbers="HERE")).replace('"HERE"', extra)
        if not asked.body.get("stream"):
            return web.Response(text=text, content_type="application/json")
        chunk = {"id": "1", "object": "chat.completion.chunk", "model": "m-1", "system_fingerprint": "fp-1"}
        delta = {"index": 0, "delta": {"role": "assistant", "content": "Blue."}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        first = json.dumps({**chunk, "choices": [delta], "x_numbers": "HERE"}).replace('"HERE"', extra).encode()
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        return [first, {**chunk, "choices": [end]}, {**chunk, "choices": [], "usage": usage}, b"[DONE]"]

    upstream.answer = answer
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "stream": streams}
    sent = json.dumps(body | {"x_numbers": "HERE"}).replace('"HERE"', extra)
    headers = {"content-type": "application/json"}
    found = []
    for _ in range(2):
        got = server.http.post(CHAT, content=sent, headers=headers)
        assert got.status_code == 200, got.text
        found.append(got.headers["x-samebits-cache"])
        [numbers] = re.findall(r'"x_numbers":(\[[^\]]*\])', got.text)
        assert exact(numbers) == exact(extra)
    assert found == ["miss", "hit"]
    [asked] = upstream.asked
    assert exact(asked.raw)["x_numbers"] == exact(extra)
    with Ledger.open(url, readonly=True) as ledger:
        stored = [json.loads(record.body or b"") for record in ledger.records()]
    assert [kept["request"]["x_numbers"][2] for kept in stored] == [NUMBERS[2]] * 2


@pytest.mark.parametrize("privacy", ["full", "digest-only"])
def test_a_replay_sends_the_digits_that_were_sent(serve: Any, upstream: Stub, tmp_path: Path, privacy: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    server = serve(ledger={"url": url, "privacy": privacy})
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "x_numbers": ["HERE"]}
    sent = json.dumps(body).replace('"HERE"', ",".join(NUMBERS + PLAIN))
    answer = server.http.post(CHAT, content=sent, headers={"content-type": "application/json"}).json()
    (tmp_path / "request.json").write_text(sent)
    models = {"m": {"engine": "upstream", "base_url": upstream.url}}
    (tmp_path / "samebits.yaml").write_text(json.dumps({"models": models}))
    again = ["replay", answer["id"], "--url", url, "--config", str(tmp_path / "samebits.yaml")]
    if privacy == "digest-only":
        assert run_verb(again) == 3, "the request is not stored"
        again += ["--request", str(tmp_path / "request.json")]
        assert run_verb(again) == 3, "and of the upstream's answer nothing that could be compared"
    else:
        assert run_verb(again) == 0
        # Negative control: what the record holds beside the spelling is another request.
        with Ledger.open(url, readonly=True) as ledger:
            [record] = ledger.records()
        stored = json.loads(record.body or b"")["request"]
        assert exact(json.dumps(stored))["x_numbers"] != exact(sent)["x_numbers"]
    first, second = upstream.asked
    assert exact(second.raw) == exact(first.raw)
    assert exact(second.raw)["x_numbers"] == exact(sent)["x_numbers"]
