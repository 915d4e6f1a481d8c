"""The gateway before vLLM, by answers that were recorded from it (vLLM itself is too large for every run)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import sse_data
from stub import Stub
from vllm_shapes import FINGERPRINT, SERVER_INFO, plain, refusal, streamed

from samebits.cli import _run as run_verb
from samebits.errors import InputError

CHAT = "/v1/chat/completions"


def ask(**body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Say hi."}], "temperature": 0} | body


def events(server: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
    with server.http.stream("POST", CHAT, json=body | {"stream": True}) as response:
        found = list(sse_data(response.iter_lines()))
    assert found.pop() == "[DONE]"
    return [json.loads(event) for event in found]


def test_every_field_of_an_answer_comes_through(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: plain()
    server = serve(m={"api": "vllm", "model": "smollm2"})
    answer = server.post(CHAT, **ask(top_k=1, min_tokens=3, structured_outputs={"regex": "[0-9]"})).json()
    assert upstream.asked[0].body["structured_outputs"] == {"regex": "[0-9]"}
    block = answer.pop("samebits")
    assert block["gateway"]["upstream_id"] == plain()["id"] != answer.pop("id")
    assert answer == {name: value for name, value in plain().items() if name != "id"}
    assert (block["cached_prompt_tokens"], block["fingerprint"]) == (16, FINGERPRINT)


def test_a_stream_states_the_fingerprint_of_its_own_answer(serve: Any, upstream: Stub) -> None:
    """It comes with the usage, after everything else; the server may have been started anew since the last answer."""
    upstream.answer = lambda asked: streamed("I'm", " here") if asked.body.get("stream") else plain()
    server = serve(m={"api": "vllm"}, policies={"p": {"cache": "off"}}, policy="p")
    server.post(CHAT, **ask())
    upstream.answer = lambda _: streamed("I'm", " here", fingerprint="vllm-0.33.0-aaaaaaaa")
    found = events(server, ask())
    stated = [chunk.get("system_fingerprint") for chunk in found]
    assert stated == [None, None, "vllm-0.33.0-aaaaaaaa"]
    assert found[-1]["samebits"]["fingerprint"] == "vllm-0.33.0-aaaaaaaa"
    assert found[-1]["samebits"]["warnings"] == [
        f"fingerprint moved: m had {FINGERPRINT}, and has vllm-0.33.0-aaaaaaaa"
    ]
    assert not any(chunk.get("usage") for chunk in found)


def test_a_plain_answer_is_made_of_a_stream_that_was_kept(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: streamed("I'm", " here")
    server = serve(m={"api": "vllm"})
    events(server, ask())
    answer = server.post(CHAT, **ask())
    assert answer.headers["x-samebits-cache"] == "hit"
    assert answer.json()["choices"][0]["message"] == {"role": "assistant", "content": "I'm here"}
    assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 16
    assert answer.json()["system_fingerprint"] == FINGERPRINT


@pytest.mark.parametrize("streams", [False, True])
def test_its_errors_come_through_with_a_code_that_clients_can_read(serve: Any, upstream: Stub, streams: bool) -> None:
    said = "top_p must be in (0, 1], got 3.0. (parameter=top_p, value=3.0)"
    upstream.answer = lambda _: refusal(400, "BadRequestError", said, "top_p")
    server = serve(m={"api": "vllm"})
    response = server.post(CHAT, **ask(top_p=3, stream=streams))
    assert response.status_code == 400
    assert response.json()["error"] == {"message": said, "type": "BadRequestError", "param": "top_p", "code": "400"}
    assert upstream.calls == 1, "what is refused is not sent again"


def test_its_description_tells_of_the_mode(serve: Any, upstream: Stub) -> None:
    upstream.answer = lambda _: plain()
    upstream.pages["/server_info"] = SERVER_INFO
    with pytest.raises(InputError, match="does not run in its deterministic mode"):
        serve(m={"api": "vllm", "level": "batch"})
    on = SERVER_INFO | {"vllm_env": {"VLLM_BATCH_INVARIANT": True}}
    upstream.pages["/server_info"] = on
    server = serve(m={"api": "vllm", "level": "batch"})

    def verified(content: str) -> bool | None:
        body = ask(messages=[{"role": "user", "content": content}])
        return server.post(CHAT, **body).json()["samebits"]["gateway"]["level_verified"]

    assert verified("a") is True
    answers: Iterator[Any] = iter([ConnectionResetError(), plain()])
    upstream.answer = lambda _: next(answers)
    assert verified("b") is None, "it was lost, and may have been started anew without its mode"


def test_a_receipt_of_it_is_run_again(serve: Any, upstream: Stub, tmp_path: Path, capsys: Any) -> None:
    """With the answer at hand; its receipt alone has no digest that a second answer could have."""

    def samebits(*words: object) -> tuple[int, str]:
        return run_verb([str(word) for word in words]), capsys.readouterr().out

    numbers = iter(range(10))
    upstream.answer = lambda _: plain() | {"id": f"chatcmpl-{next(numbers)}", "created": next(numbers)}
    url = f"sqlite:///{tmp_path}/ledger.db"
    server = serve(m={"api": "vllm"}, ledger={"url": url})
    answer = server.post(CHAT, **ask()).json()
    (tmp_path / "request.json").write_text(json.dumps(ask()))
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    upstreams = {"m": {"engine": "upstream", "base_url": upstream.url, "api": "vllm"}}
    (tmp_path / "samebits.yaml").write_text(json.dumps({"models": upstreams}))
    assert samebits("keys", "init", "--out", tmp_path / "keys")[0] == 0
    key = tmp_path / "keys" / "receipt-key"
    _, receipt = samebits("ledger", "show", answer["id"], "--url", url, "--receipt", "--key", f"{key}.pem")
    (tmp_path / "receipt.json").write_text(receipt)
    again = ["verify", tmp_path / "receipt.json", "--key", f"{key}.pub", "--request", tmp_path / "request.json"]
    again += ["--rerun", "--config", tmp_path / "samebits.yaml"]
    assert samebits(*again)[0] == 3
    assert samebits(*again, "--answer", tmp_path / "answer.json")[0] == 0
    upstream.answer = lambda _: plain("I'm gone")
    assert samebits(*again, "--answer", tmp_path / "answer.json")[0] == 1
