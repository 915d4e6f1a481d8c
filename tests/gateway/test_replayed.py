"""What was computed is recorded where it is not what was asked, so that a replay sends that."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from live import NAME
from stub import Asked, Stub, chat

from samebits import LLM
from samebits.cli import _run
from samebits.cli.answering import Answering, Source
from samebits.ledger import Ledger
from samebits.ledger.canonical import canonical
from samebits.ledger.keys import PRIVATE_NAME, PUBLIC_NAME, read_signer, write_new
from samebits.ledger.receipt import envelope
from samebits.ledger.replay import Recorded, replay_one
from small_model import write_model

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HELLO = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"z": {"type": "boolean"}, "a": {"const": 1.0}}, "required": ["z", "a"]}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
POLICIES: dict[str, Any] = {
    "short": {"force": {"max_tokens": 3, "temperature": 0.8}, "seed": "derive"},
    "leveled": {"level": "batch"},
    "formed": {"force": {"response_format": FORM, "max_completion_tokens": 60}},
    "tooled": {"default": {"tools": [TOOL], "max_tokens": 40}, "force": {"tool_choice": "auto"}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(folder: str) -> Any:
    with LLM(folder) as made:
        yield made


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def bodies(url: str, kind: str = "answer") -> list[dict[str, Any]]:
    with Ledger.open(url, readonly=True) as ledger:
        return [json.loads(r.body or b"") for r in ledger.records() if r.kind == kind]


def replay(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = _run(["replay", *arguments])
    return code, out.getvalue()


def config_file(tmp_path: Path, **values: Any) -> str:
    path = tmp_path / "samebits.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def asked(server: Any, path: str, policy: str, **body: Any) -> dict[str, Any]:
    response = server.http.post(path, json={"model": NAME} | body, headers={"x-samebits-policy": policy})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


CASES: list[tuple[str, str, dict[str, Any], set[str]]] = [
    (CHAT, "short", {"messages": HELLO}, {"max_tokens", "temperature", "seed"}),
    (CHAT, "short", {"messages": HELLO, "max_completion_tokens": 9}, {"max_completion_tokens", "temperature", "seed"}),
    (COMPLETIONS, "short", {"prompt": "Hi", "seed": 5}, {"max_tokens", "temperature"}),
    (RESPONSES, "short", {"input": "Hi"}, {"max_output_tokens", "temperature", "seed"}),
    ("/generate", "short", {"text": "Hi"}, {"sampling_params"}),
    (CHAT, "formed", {"messages": HELLO}, {"max_completion_tokens", "response_format"}),
    (CHAT, "tooled", {"messages": HELLO}, {"tools", "tool_choice", "max_tokens"}),
    (CHAT, "leveled", {"messages": HELLO, "max_tokens": 3}, {"determinism"}),
    (CHAT, "plain", {"messages": HELLO, "max_tokens": 3}, set()),
]


def test_a_replay_sends_what_a_policy_made_of_a_request(
    serve: Any, llm: LLM, folder: str, url: str, tmp_path: Path
) -> None:
    server = serve({NAME: llm}, ledger={"url": url}, policies=POLICIES)
    for path, policy, body, _ in CASES:
        asked(server, path, policy, **body)
    recorded = bodies(url)
    assert [set(body["changes"] or ()) for body in recorded] == [changed for *_, changed in CASES]
    for body, (_, policy, sent, _) in zip(recorded, CASES, strict=True):
        assert body["request"] == {"model": NAME} | sent, "the request is recorded as it came"
        assert {change["origin"] for change in (body["changes"] or {}).values()} <= {f"policy {policy}"}
    assert list(recorded[5]["changes"]["response_format"]["value"]["json_schema"]["schema"]["properties"]) == ["a", "z"]
    assert replay("--all", "--url", url, "--model", folder) == (0, f"{len(CASES)} same, 0 differ, 0 not measured\n")
    # The server's own policy is not laid over what was computed.
    other = {"default": {"temperature": 1.5}, "force": {"max_tokens": 1}}
    config = config_file(
        tmp_path, models={NAME: {"path": folder}}, policies={"other": other, "plain": other}, policy="other"
    )
    assert replay("--all", "--url", url, "--config", config)[0] == 0


def test_negative_control_without_the_changes_the_answers_differ(
    serve: Any, llm: LLM, folder: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve({NAME: llm}, ledger={"url": url}, policies=POLICIES)
    for path, policy, body, _ in CASES[
        4:7
    ]:  # those of the others are among the effective parameters, which are sent too
        asked(server, path, policy, **body)
    monkeypatch.setattr("samebits.ledger.replay.Recorded._changes", lambda _: {})
    code, said = replay("--all", "--url", url, "--model", folder)
    assert (code, said.splitlines()[-1]) == (1, "0 same, 3 differ, 0 not measured")


SEVERAL: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": ["Hi", "Ho", "Hi"], "n": 2}),
    (COMPLETIONS, {"prompt": [[40, 41], [42]], "logprobs": 1}),
    (CHAT, {"messages": HELLO, "n": 3}),
    ("/generate", {"text": ["Hi", "Ho"], "sampling_params": {"n": 2}}),
    ("/generate", {"text": "Hi", "sampling_params": {"n": 2}}),
]


@pytest.mark.parametrize("streams", [False, True])
def test_several_answers_of_one_drawn_seed_can_be_asked_again(
    serve: Any, llm: LLM, folder: str, url: str, streams: bool
) -> None:
    server = serve({NAME: llm}, ledger={"url": url})
    for path, body in SEVERAL:
        # Past the end of text, since one that is drawn at once twice would make two answers the same.
        sampling = {
            "temperature": 1.5,
            "ignore_eos": True,
            ("max_new_tokens" if path == "/generate" else "max_tokens"): 6,
        }
        inner = {"sampling_params": {**sampling, **body.get("sampling_params", {})}}
        whole = body | (inner if path == "/generate" else sampling)
        assert server.http.post(path, json={"model": NAME, "stream": streams, **whole}).status_code == 200
    recorded = bodies(url)
    assert [body["index"] for body in recorded] == [None, None, None, 0, 1, 2, 3, 0, 1]
    seeds = [body["seed"] for body in recorded]
    assert len(set(seeds[3:7])) == len(set(seeds[7:])) == 1, "one for a request"
    assert len(set(seeds)) == len(SEVERAL), "another one for each request"
    assert len({body["digests"]["output_tokens"] for body in recorded}) == len(recorded), "not exercised: all the same"
    assert replay("--all", "--url", url, "--model", folder) == (0, f"{len(recorded)} same, 0 differ, 0 not measured\n")


def test_negative_control_another_of_several_answers_differs(serve: Any, llm: LLM, folder: str, url: str) -> None:
    server = serve({NAME: llm}, ledger={"url": url})
    several = {"text": ["Hi", "Ho"], "sampling_params": {"max_new_tokens": 6}}
    assert server.http.post("/generate", json={"model": NAME, **several}).status_code == 200
    [first, _] = bodies(url)
    with Ledger.open(url, readonly=True) as ledger:
        records = [r for r in ledger.records() if r.kind == "answer"]
    wrong = Recorded.of(records[0])
    swapped = replace(wrong, body={**first, "index": 1})
    unknown = replace(wrong, body={**first, "index": None})

    async def outcomes() -> list[str]:
        async with Answering(Source(None, folder)) as answering:
            return [(await replay_one(each, answering.answer)).verdict for each in (wrong, swapped, unknown)]

    assert asyncio.run(outcomes()) == ["same", "differs", "not measured"]


@pytest.mark.parametrize("privacy", ["digest-only", "redacted"])
def test_privacy_holds_for_what_was_changed(
    serve: Any, llm: LLM, folder: str, url: str, tmp_path: Path, privacy: str
) -> None:
    secret = "ada.sentinel@example.org"
    rules = {"numbers": {"force": {"max_tokens": 3}}, "texts": {"force": {"stop": [secret], "max_tokens": 3}}}
    server = serve({NAME: llm}, ledger={"url": url, "privacy": privacy}, policies=rules)
    request = {"model": NAME, "prompt": "a@example.org"}
    ids = [asked(server, COMPLETIONS, policy, prompt=request["prompt"])["id"] for policy in rules]
    assert secret.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    numbers, texts = bodies(url)
    assert numbers["changes"]["max_tokens"] == {"value": 3, "origin": "policy numbers"}
    assert texts["changes"]["stop"]["value"] != [secret]
    withheld = [
        {name for name, change in body["changes"].items() if change.get("withheld")} for body in (numbers, texts)
    ]
    assert withheld == [set(), {"stop"}]
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request))
    code, said = replay(ids[1], "--url", url, "--request", str(file))
    assert (code, "what was sent as stop (set by policy texts) is known by its digest at most" in said) == (3, True), (
        said
    )
    assert "max_tokens" not in said, "that is known"
    strict = asked(server, COMPLETIONS, "critical", prompt=request["prompt"])["id"]
    code, said = replay(strict, "--url", url, "--request", str(file), "--model", folder)
    assert code == 0, said  # the level that a policy demands is known, too


def test_a_receipt_alone_is_enough_to_run_what_a_policy_made_again(
    serve: Any, llm: LLM, folder: str, url: str, tmp_path: Path
) -> None:
    """Of numbers; of a text it says which one it does not hold. The control: the same receipt without what it tells."""
    write_new(tmp_path / "keys")
    private, public = (str(tmp_path / "keys" / name) for name in (PRIVATE_NAME, PUBLIC_NAME))
    server = serve({NAME: llm}, ledger={"url": url, "receipt_key": private}, policies=POLICIES)
    body = {"model": NAME, "messages": HELLO}
    (tmp_path / "request.json").write_text(json.dumps(body))

    def verified(policy: str, forget: bool = False) -> tuple[int, str]:
        answer = asked(server, CHAT, policy, messages=HELLO)
        receipt = server.http.get(f"/v1/receipts/{answer['id']}").content
        if forget:
            statement = json.loads(base64.b64decode(json.loads(receipt)["payload"]))
            statement["predicate"]["changes"] = None
            receipt = envelope(canonical(statement), read_signer(Path(private)))
        (tmp_path / "receipt.json").write_bytes(receipt)
        out = io.StringIO()
        again = ["--rerun", "--request", str(tmp_path / "request.json"), "--model", folder]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = _run(["verify", str(tmp_path / "receipt.json"), "--key", public, *again])
        return code, out.getvalue()

    assert verified("short")[0] == 0
    assert verified("short", forget=True)[0] == 1
    assert verified("critical")[0] == 0, "which sets a level of determinism too: a text, and one of five"
    code, said = verified("formed")
    assert (code, "sent as response_format (set by policy formed) is known by its digest" in said) == (3, True), said


def test_an_upstream_is_sent_what_the_attempt_was_sent(serve: Any, upstream: Stub, url: str, tmp_path: Path) -> None:
    def answer(got: Asked) -> Any:
        return chat("blue" if len(got.body["messages"]) > 1 and got.body["max_tokens"] == 7 else "B7")

    upstream.answer = answer
    policies = {"valid": {"regex": "[a-z]+", "retries": 2, "force": {"max_tokens": 7}, "cache": "deterministic"}}
    server = serve(ledger={"url": url}, policies=policies)
    body = {"messages": HELLO, "temperature": 0, "seed": 5, "x_unknown": {"b": 1, "a": 2}}
    for status in ("miss", "hit"):
        got = asked(server, CHAT, "valid", **body | {"model": "m"})
        assert got["samebits"]["gateway"]["cache"] == status
        assert got["samebits"]["seed"] == upstream.asked[-1].body["seed"] != 5
    sent = upstream.asked[-1].body
    attempts = bodies(url, "attempt")
    assert [(said["seed"], said["params"]["seed"]) for said in attempts] == [
        (5, {"value": 5, "origin": "request"}),
        (sent["seed"], {"value": sent["seed"], "origin": "attempt 2"}),
    ]
    for recorded in bodies(url):
        assert (recorded["seed"], recorded["params"]["seed"]) == (attempts[1]["seed"], attempts[1]["params"]["seed"])
        assert recorded["params"]["max_tokens"] == {"value": 7, "origin": "policy valid"}
        origins = {name: change["origin"] for name, change in recorded["changes"].items()}
        assert origins == {"max_tokens": "policy valid", "messages": "attempt 2", "seed": "attempt 2"}
    config = config_file(tmp_path, models={"m": {"engine": "upstream", "base_url": upstream.url}}, policies=policies)
    assert replay("--all", "--url", url, "--config", config)[0] == 0
    assert upstream.asked[-1].body == sent
    assert list(upstream.asked[-1].body["x_unknown"]) == ["b", "a"]


def test_what_a_model_refuses_is_a_change_too(serve: Any, upstream: Stub, url: str) -> None:
    server = serve(m={"model": "o3-mini"}, ledger={"url": url}, policies={"loud": {"unmet": "announce"}})
    asked(server, CHAT, "loud", model="m", messages=HELLO, temperature=0.5, max_tokens=5)
    [body] = bodies(url)
    assert body["changes"] == {
        "temperature": {"origin": "model"},
        "max_tokens": {"origin": "model"},
        "max_completion_tokens": {"value": 5, "origin": "model"},
    }
