"""Every answer is in the ledger before its last byte is sent; secrets are nowhere."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import NAME, sse_data
from stub import Asked, Stub, chat
from test_leaving import FOREVER, asking

from samebits import LLM
from samebits.errors import LedgerError
from samebits.ledger import Ledger, Record
from small_model import write_model
from waiting import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"
RETRYING = {"valid": {"regex": "[a-z]+", "retries": 2}}


def ask(content: str = "Hi", **body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], "temperature": 0} | body


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def records(url: str, kind: str | None = None) -> list[tuple[Record, dict[str, Any]]]:
    with Ledger.open(url, readonly=True) as ledger:
        found = [(r, json.loads(r.body or b"null")) for r in ledger.records()]
    return [(r, body) for r, body in found if kind is None or r.kind == kind]


def test_every_answer_has_a_record_under_its_id(serve: Any, upstream: Stub, url: str) -> None:
    server = serve(ledger={"url": url})
    for body in (ask("a"), ask("a"), ask("b", seed=3, temperature=1)):
        answer = server.post(CHAT, **body).json()
        [(record, stored)] = [(r, b) for r, b in records(url) if r.id == answer["id"]]
        assert record.kind == "answer"
        assert answer["samebits"]["receipt_id"] == answer["id"]
        assert stored["request"] == body
        assert stored["answer"] == answer
        assert stored["cache"] == answer["samebits"]["gateway"]["cache"]
    with server.http.stream("POST", CHAT, json=ask("c", stream=True)) as response:
        for line in sse_data(response.iter_lines()):
            if line == "[DONE]":
                break
            chunk = json.loads(line)
            if "samebits" in chunk:
                assert chunk["id"] in {r.id for r, _ in records(url)}, "the end was sent before the disk had it"
    assert [r.kind for r, _ in records(url)] == ["answer"] * 4


def test_a_policy_without_receipts(serve: Any, upstream: Stub, url: str) -> None:
    server = serve(ledger={"url": url}, policies={"bare": {"receipt": False}})
    answer = server.http.post(CHAT, json=ask(), headers={"x-samebits-policy": "bare"}).json()
    assert answer["samebits"]["receipt_id"] is None
    assert [r.id for r, _ in records(url)] == [answer["id"]], "the record is there all the same"


def test_attempts_errors_and_aliases(serve: Any, upstream: Stub, url: str) -> None:
    server = serve(ledger={"url": url}, policies=RETRYING)

    def answer(asked: Asked) -> Any:
        return chat("blue" if len(asked.body["messages"]) > 1 else "B7")

    upstream.answer = answer
    headers = {"x-samebits-policy": "valid"}
    good = server.http.post(CHAT, json=ask(seed=5), headers=headers).json()
    kinds = [(r.kind, r.id) for r, _ in records(url)]
    assert kinds == [("attempt", f"{good['id']}.1"), ("attempt", f"{good['id']}.2"), ("answer", good["id"])]
    attempts = [body for _, body in records(url, "attempt")]
    assert [a["parent"] for a in attempts] == [good["id"]] * 2
    assert [a["attempt"] for a in attempts] == [1, 2]
    assert attempts[0]["seed"] == 5
    assert attempts[1]["seed"] not in (5, None)
    upstream.answer = lambda _: (400, {"error": {"message": "no", "code": "bad"}})
    assert server.post(CHAT, **ask("other")).status_code == 400
    assert [body["error"]["code"] for _, body in records(url, "error")] == ["bad"]
    assert server.post(CHAT, **ask(determinism="portable")).status_code == 400
    upstream.answer = lambda _: chat(model="m-2")
    server.post(CHAT, **ask("third"))
    assert len(records(url, "alias")) == 1
    assert records(url, "answer")[-1][1]["model"]["name"] == "m-2"


def test_an_alias_that_moves_while_the_server_is_down_is_seen(serve: Any, upstream: Stub, url: str) -> None:
    """Case M08."""

    def warnings(server: Any, content: str, **headers: str) -> Any:
        answer = server.http.post(CHAT, json=ask(content), headers=headers).json()
        return answer["samebits"]["warnings"] if "samebits" in answer else answer["error"]["code"]

    keys = {"level": "batch"}
    assert warnings(serve(m=keys, ledger={"url": url}), "a") == []
    upstream.answer = lambda _: chat(model="m-2", system_fingerprint="fp-1")
    policies = {"strict": {"drift": "refuse"}}
    again = serve(m=keys, ledger={"url": url}, policies=policies)
    assert warnings(again, "b", **{"x-samebits-policy": "strict"}) == "model_moved"
    assert warnings(again, "c") == ["alias moved: m was m-1, and is m-2"]
    [(_, alias)] = records(url, "alias")
    assert alias["answer"] == {"said": "alias moved: m was m-1, and is m-2", "model": "m-1", "fingerprint": "fp-1"}
    assert warnings(again, "d") == [], "a new baseline was opened"
    assert warnings(serve(m=keys, ledger={"url": url}), "e") == [], "and is kept"
    # Negative controls: another name there has no baseline, and without a ledger nothing is known.
    upstream.answer = lambda _: chat(model="m-3")
    assert warnings(serve(m={**keys, "model": "other"}, ledger={"url": url}), "f") == []
    assert warnings(serve(m=keys), "g") == []
    assert warnings(serve(m=keys, ledger={"url": url}), "h") == ["alias moved: m was m-2, and is m-3"]


def test_a_client_that_goes_away_is_recorded(serve: Any, upstream: Stub, url: str) -> None:
    upstream.delay = FOREVER
    server = serve(ledger={"url": url})
    client = asking(server)
    wait_until(lambda: upstream.open == 1)
    assert records(url) == []
    client.close()
    wait_until(lambda: records(url))
    assert [r.kind for r, _ in records(url)] == ["cancelled"]


def test_tenants_have_chains_of_their_own(serve: Any, upstream: Stub, url: str) -> None:
    server = serve(ledger={"url": url}, keys=["ada key-of-ada-1", "key-of-nobody"])
    for key in ("key-of-ada-1", "key-of-nobody", "key-of-ada-1"):
        httpx.post(server.url + CHAT, json=ask(), headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE_S)
    assert [(r.tenant, r.seq) for r, _ in records(url)] == [("ada", 1), ("ada", 2), ("key-2", 1)]


def test_an_answer_that_cannot_be_stored_is_not_given(serve: Any, upstream: Stub, url: str) -> None:
    server = serve(ledger={"url": url})
    server.service.gateway.recorder.ledger.ledger.engine.dispose()

    def fails(*_: Any) -> Any:
        raise LedgerError("the disk is full")

    server.service.gateway.recorder.ledger.ledger.append_sealed = fails
    response = server.post(CHAT, **ask())
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "ledger_unavailable"
    text = server.post(CHAT, **ask("x", stream=True)).text
    assert "ledger_unavailable" in text
    assert "[DONE]" not in text


# ---- secrets ---------------------------------------------------------------------------------------------------------

SECRETS = (
    "sentinel-prompt-7731",
    "ada.sentinel@example.org",
    "sk-test-sentinel-0001",
    "upstream-sentinel-key",
    "AKIASENTINEL00000001",
)


@pytest.mark.parametrize("privacy", ["digest-only", "redacted", "full"])
def test_secrets_are_nowhere_but_where_the_policy_puts_them(
    serve: Any,
    upstream: Stub,
    url: str,
    tmp_path: Path,
    privacy: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    prompt, email, own_key, key, cloud = SECRETS
    monkeypatch.setenv("SENTINEL_KEY", key)
    caplog.set_level(logging.DEBUG)
    server = serve(
        keys=[own_key], m={"api_key_env": "SENTINEL_KEY", "attempts": 2}, ledger={"url": url, "privacy": privacy}
    )
    content = f"{prompt} {email} 'aws_secret={cloud}'"
    quoted = f"bad key {key} in request"
    values = (chat("Fine."), (401, {"error": {"message": quoted}}), (500, {"error": quoted}), ConnectionError())
    for number, value in enumerate(values):
        upstream.answer = lambda _, value=value: value
        for streams in (False, True):
            response = server.post(CHAT, **ask(f"{content} {number}", stream=streams))
            assert key not in response.text
            assert own_key not in response.text
            if response.status_code != 200:
                assert prompt not in response.text
    wrong = {"authorization": "Bearer wrong"}
    assert httpx.post(server.url + CHAT, json=ask(content), headers=wrong, timeout=PATIENCE_S).status_code == 401
    metrics, page = server.http.get("/metrics").text, server.http.get("/cache").text
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert len(records(url)) >= 8
    for secret in SECRETS:
        assert secret not in caplog.text
        assert secret not in metrics + page
    for secret in (own_key, key):
        assert secret.encode() not in stored
    for secret in (prompt, email, cloud):
        expected = privacy == "full" or (privacy == "redacted" and secret == prompt)
        assert (secret.encode() in stored) is expected, secret


# ---- our own engine --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LLM(write_model(tmp_path_factory.mktemp("model"))) as made:
        yield made


def test_all_routes_of_our_own_engine(serve: Any, llm: LLM, url: str) -> None:
    server = serve({NAME: llm}, ledger={"url": url}, policies={"kept": {"cache": "deterministic"}})
    chatted = server.chat("Hi", max_tokens=4)
    completed = server.complete("Hi", max_tokens=4, temperature=1, seed=3)
    responded = server.ok("/v1/responses", input="Hi", max_output_tokens=4)
    [generated, other] = server.post("/generate", model=NAME, text=["Hi", "Ho"]).json()
    ids = [chatted["id"], completed["id"], responded["id"], generated["meta_info"]["id"], other["meta_info"]["id"]]
    stored = records(url)
    assert [r.id for r, _ in stored] == ids
    for (_, body), block in zip(stored[:3], (chatted, completed, responded), strict=False):
        assert body["digests"]["output_tokens"] == block["samebits"]["output_tokens_sha256"]
        assert block["samebits"]["receipt_id"] == block["id"]
    rendered = [body["digests"]["rendered_prompt"] for _, body in stored]
    assert rendered[0] == rendered[2] == chatted["samebits"]["rendered_prompt_sha256"]
    assert [text is None for text in rendered] == [False, True, False, True, True], "those of conversations"
    assert stored[1][1]["seed"] == 3
    assert stored[1][1]["params"]["temperature"] == {"value": 1.0, "origin": "request"}
    chunks = server.stream(CHAT, messages=[{"role": "user", "content": "Hi"}], max_tokens=4)
    assert chunks[-1]["samebits"]["output_tokens_sha256"] == chatted["samebits"]["output_tokens_sha256"]
    events = server.http.post("/v1/responses", json={"model": NAME, "input": "Hi", "stream": True}).text
    last = json.loads([line for line in events.splitlines() if line.startswith("data: ")][-1].removeprefix("data: "))
    assert {chunks[-1]["id"], last["response"]["id"]} == {r.id for r, _ in records(url)[5:]}
    assert last["response"]["samebits"]["receipt_id"] == last["response"]["id"]
    assert server.post(CHAT, model=NAME, messages=[]).status_code == 400
    assert records(url)[-1][0].kind == "error"


def test_who_steps_in_for_our_own_engine_gives_what_is_declared_for_it(
    serve: Any, upstream: Stub, llm: LLM, url: str
) -> None:
    """Also where it is another samebits, which says more of itself."""
    said = {"level": "portable", "fingerprint": "sha256:" + "ab" * 32, "seed": 4, "params": {}, "warnings": []}
    upstream.answer = lambda _: chat(samebits=said)
    models = {NAME: {"path": "given", "failover": ["m"]}}
    server = serve(
        {NAME: llm}, m={"api": "samebits"}, models=models, ledger={"url": url}, policy="any", max_choices=1,
        policies={"any": {"failover": "any"}},
    )  # fmt: skip
    question = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    with ThreadPoolExecutor(1) as pool, server.standing() as still:
        ours = pool.submit(server.ok, CHAT, **question)
        assert still.reached.wait(PATIENCE_S)
        whole = server.ok(CHAT, **question)["samebits"]  # more than may be open
        streamed = server.stream(CHAT, **question)[-1]["samebits"]
        still.leave.set()
        assert ours.result()["samebits"]["level"] == "portable"
    for block in (whole, streamed):
        assert block["gateway"]["route"] == "m"
        assert (block["level"], block["fingerprint"], block["seed"]) == ("best-effort", "fp-1", 4)
    assert [body["level"]["declared"] for _, body in records(url)] == ["best-effort", "best-effort", "portable"]


def test_generate_has_streams_and_policies_beside_a_ledger(serve: Any, llm: LLM, url: str) -> None:
    rules = {"fixed": {"force": {"temperature": 0.5, "max_tokens": 3}, "seed": "derive"}, "judged": {"regex": "a"}}
    server = serve({NAME: llm}, ledger={"url": url}, policies=rules)
    body = {"model": NAME, "text": ["Hi", "Ho"], "sampling_params": {"max_new_tokens": 9, "temperature": 0}}
    whole = server.http.post("/generate", json=body, headers={"x-samebits-policy": "fixed"}).json()
    streamed = server.http.post("/generate", json=body | {"stream": True}, headers={"x-samebits-policy": "fixed"})
    lines = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    events = [json.loads(line) for line in lines]
    assert [event["index"] for event in events] == [0, 1]
    assert [event["output_ids"] for event in events] == [answer["output_ids"] for answer in whole]
    block = whole[0]["meta_info"]["samebits"]
    assert {n: p["value"] for n, p in block["params"].items() if p["origin"] == "policy fixed"} == {
        "temperature": 0.5,
        "max_tokens": 3,
        "seed": block["seed"],
    }
    other = server.http.post("/generate", json=body | {"text": "No"}, headers={"x-samebits-policy": "fixed"}).json()
    assert other["meta_info"]["samebits"]["seed"] != block["seed"]
    refused = server.http.post("/generate", json=body, headers={"x-samebits-policy": "judged"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "x-samebits-policy")


def test_an_id_of_the_clients_own_is_checked_before_anything_is_computed(serve: Any, llm: LLM, url: str) -> None:
    keys = ["ada key-of-ada-1", "bob key-of-bob-1"]
    server = serve({NAME: llm}, ledger={"url": url}, keys=keys)
    body = {"model": NAME, "text": "Hi", "sampling_params": {"max_new_tokens": 4}}

    def asked(rid: str, key: str = "key-of-ada-1", **others: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.post(
            server.url + "/generate", json=body | {"rid": rid} | others, headers=headers, timeout=PATIENCE_S
        )

    assert asked("mine").json()["meta_info"]["id"] == "mine"
    before = computed_tokens(server)
    for rid, others in (("mine", {}), ("mine", {"stream": True}), ("no id", {}), ("x" * 201, {})):
        refused = asked(rid, **others)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "rid"), rid
    assert computed_tokens(server) == before > 0, "an answer was computed that cannot be given"
    assert asked("mine", "key-of-bob-1").status_code == 200, "tenants do not learn of each other's ids"
    assert [r.tenant for r, _ in records(url, "answer") if r.id == "mine"] == ["ada", "bob"]


def computed_tokens(server: Any) -> float:
    headers = {"authorization": "Bearer key-of-ada-1"}
    metrics = httpx.get(server.url + "/metrics", headers=headers, timeout=PATIENCE_S)
    lines = metrics.text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("samebits_tokens_total"))


def test_two_at_once_cannot_have_one_id(serve: Any, llm: LLM, url: str) -> None:
    server = serve({NAME: llm}, ledger={"url": url})
    body = {"model": NAME, "text": "Hi", "rid": "mine", "sampling_params": {"max_new_tokens": 100, "ignore_eos": True}}
    with ThreadPoolExecutor() as pool:
        codes = sorted(r.status_code for r in pool.map(lambda _: server.post("/generate", **body), range(4)))
    assert codes == [200, 400, 400, 400]
    assert len(records(url, "answer")) == 1


def test_without_a_ledger_any_id_will_do(serve: Any, llm: LLM) -> None:
    server = serve({NAME: llm}, policy="research")
    for _ in range(2):
        got = server.post("/generate", model=NAME, text="Hi", rid="an id", sampling_params={"max_new_tokens": 2})
        assert got.json()["meta_info"]["id"] == "an id"


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_our_own_engine_behind_the_cache(serve: Any, llm: LLM, path: str) -> None:
    server = serve({NAME: llm}, policies={"kept": {"cache": "deterministic"}}, policy="kept")
    asked = {"messages": [{"role": "user", "content": "Hi"}]} if path == CHAT else {"prompt": "Hi"}
    # Until the end of text, since an answer that was cut is not kept.
    body = {"model": NAME, "logprobs": True if path == CHAT else 1, "stop": ["\n", " ", "e", "a"], **asked}
    body["max_tokens"] = 400
    first = server.http.post(path, json=body)
    assert first.json()["choices"][0]["finish_reason"] == "stop", first.text
    spelled = body | {"temperature": 0.0, "top_p": 1, "n": None, "user": "u"}
    second = server.http.post(path, json=spelled)
    assert [r.headers["x-samebits-cache"] for r in (first, second)] == ["miss", "hit"]
    for answer in (first.json(), second.json()):
        assert answer["choices"] == first.json()["choices"]
        assert answer["samebits"]["logprobs_sha256"] == first.json()["samebits"]["logprobs_sha256"]
    server.http.delete("/cache")
    streamed = server.http.post(path, json=body | {"stream": True})
    assert streamed.headers["x-samebits-cache"] == "miss"
    third = server.http.post(path, json=body)
    assert third.headers["x-samebits-cache"] == "hit"
    assert third.json()["choices"] == first.json()["choices"], "a joined stream is another answer"
    assert third.json()["usage"] == first.json()["usage"]


def test_our_own_engine_is_asked_again_too(serve: Any, llm: LLM, url: str) -> None:
    policies = {"never": {"regex": "impossible", "retries": 1}}
    server = serve({NAME: llm}, policies=policies, ledger={"url": url})
    body = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "seed": 3, "temperature": 1.0}
    body |= {"stop": ["e", "a", " ", "\n"], "max_tokens": 100}
    headers = {"x-samebits-policy": "never"}
    first, second = (server.http.post(CHAT, json=body, headers=headers) for _ in range(2))
    assert first.status_code == 422
    attempts = first.json()["samebits"]["attempts"]
    assert attempts == second.json()["samebits"]["attempts"]
    assert [len(records(url, kind)) for kind in ("attempt", "error")] == [2 * len(attempts), 2]
