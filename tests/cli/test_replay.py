"""``samebits replay`` and ``samebits verify``: a small model answers, is recorded, and is asked again."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.verbs import samebits
from tests.ledger.conftest import make_entry
from tests.small_model import write_model

from samebits import LLM
from samebits.api.app import make_app
from samebits.api.config import make_config
from samebits.cli.answering import post
from samebits.ledger import Digests, Entry, Ledger, ModelRef, Privacy
from samebits.ledger.keys import PRIVATE_NAME, PUBLIC_NAME, read_signer, write_new
from samebits.ledger.receipt import receipt_of

NAME, DATE = "small", "2024-07-26"
HELLO = [{"role": "user", "content": "hello"}]
CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 8}),
    "seeded": ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 8, "temperature": 1.5, "seed": 2**63 - 1}),
    "unseeded": ("/v1/chat/completions", {"messages": HELLO, "max_completion_tokens": 8, "temperature": 1.5, "n": 2}),
    "date": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "date"}], "max_tokens": 8}),
    "beams": ("/v1/completions", {"prompt": "ab", "max_tokens": 4, "use_beam_search": True, "best_of": 2}),
    "text": (
        "/v1/completions",
        {"prompt": ["ab", "cd"], "max_tokens": 4, "temperature": 0.7, "seed": 3, "logprobs": 2},
    ),
    "schema": (
        "/v1/chat/completions",
        {
            "messages": HELLO,
            "max_tokens": 40,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "integer", "minimum": 60, "maximum": 69}},
            },
        },
    ),
    "response": ("/v1/responses", {"input": "hello", "max_output_tokens": 16, "temperature": 1.0, "store": False}),
    "native": ("/generate", {"text": "ab", "sampling_params": {"max_new_tokens": 6, "temperature": 1.0}}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def entries(folder: str) -> dict[str, Entry]:
    """What a server records of each of `CALLS`."""
    with LLM(folder, "fp32") as llm:
        app = make_app(make_config({"models": {NAME: {"path": folder, "profile": "fp32"}}, "date": DATE}), {NAME: llm})

        async def ask() -> dict[str, Entry]:
            async with app.router.lifespan_context(app):
                return {name: await recorded(app, name, path, body) for name, (path, body) in CALLS.items()}

        return asyncio.run(ask())


async def recorded(app: Any, name: str, path: str, body: dict[str, Any]) -> Entry:
    request = {"model": NAME, **body}
    status, answer = await post(app, path, request)
    assert status == 200, answer
    block = answer.get("samebits") or answer["meta_info"]["samebits"]
    return make_entry(
        id=f"id-{name}",
        route=path,
        model=ModelRef(asked=NAME, name=NAME, fingerprint=block["fingerprint"], engine="embedded"),
        level_declared=block["level"],
        request=request | ({"stream": True} if name == "greedy" else {}),
        params=block["params"],
        seed=block["seed"],
        digests=Digests(
            prompt_tokens=block["prompt_tokens_sha256"],
            output_tokens=block["output_tokens_sha256"],
            logprobs=block["logprobs_sha256"],
            form=block["form_sha256"],
        ),
        answer=answer,
        date=DATE,
    )


def ledger_of(tmp_path: Path, *entries: Entry, privacy: Privacy | None = None) -> str:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Ledger.open(url, privacy=privacy) as ledger:
        ledger.append(entries)
    return url


def test_every_route_gives_the_same_bits_again(tmp_path: Path, folder: str, entries: dict[str, Entry]) -> None:
    url = ledger_of(tmp_path, *entries.values(), make_entry(kind="error"))
    report = tmp_path / "report.jsonl"
    ran = samebits("replay", "--all", "--url", url, "--model", folder, "--report", report)
    assert (ran.returncode, ran.stdout) == (0, f"{len(CALLS)} same, 0 differ, 0 not measured\n"), ran
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(row["id"], row["verdict"]) for row in rows] == [(f"id-{name}", "same") for name in CALLS]


def other(entry: Entry, **digests: str) -> Entry:
    return replace(entry, digests=replace(entry.digests, **digests))


FALSE = "sha256:" + "0" * 64


def test_a_difference_is_named_with_its_place(tmp_path: Path, folder: str, entries: dict[str, Entry]) -> None:
    """Negative control: what was recorded is not what the model says."""
    seeded = json.loads(json.dumps(entries["seeded"].answer))
    text = seeded["choices"][0]["message"]["content"]
    seeded["choices"][0]["message"]["content"] = text[:3] + "\u0001" + text[4:]
    changed = replace(other(entries["seeded"], output_tokens=FALSE, logprobs=FALSE), answer=seeded)
    url = ledger_of(tmp_path, changed, other(entries["unseeded"], logprobs=FALSE))
    ran = samebits("replay", "--all", "--url", url, "--model", folder)
    assert ran.returncode == 1
    assert f"differs in the ids of the output: {FALSE} then" in ran.stdout
    assert "/choices/0/message/content, character 3: '\\x01" in ran.stdout
    assert "differs in bits of the log-probabilities, not the text" in ran.stdout
    assert ran.stdout.count("a fault of samebits or of the machine") == 2
    assert ran.stdout.endswith("0 same, 2 differ, 0 not measured\n")


def test_another_model_is_the_cause(tmp_path: Path, folder: str, entries: dict[str, Entry]) -> None:
    url = ledger_of(tmp_path, entries["seeded"])
    ran = samebits("replay", "id-seeded", "--url", url, "--model", folder, "--profile", "int8")
    assert ran.returncode == 1
    assert "likely cause: fingerprint: model, profile or contract" in ran.stdout


def test_another_date_is_the_cause(tmp_path: Path, folder: str, entries: dict[str, Entry]) -> None:
    url, config = ledger_of(tmp_path, entries["date"]), tmp_path / "samebits.yaml"
    config.write_text(
        json.dumps({"models": {NAME: {"path": folder, "profile": "fp32"}}, "date": "2024-07-27"}), encoding="utf-8"
    )
    ran = samebits("replay", "id-date", "--url", url, "--config", config)
    assert ran.returncode == 1
    assert "differs in the ids of the prompt" in ran.stdout
    assert "likely cause: the date in the chat template: 2024-07-26 then, 2024-07-27 now" in ran.stdout


def test_digests_alone_can_be_replayed_with_the_request(tmp_path: Path, folder: str, entries: dict[str, Entry]) -> None:
    url = ledger_of(tmp_path, entries["unseeded"], privacy=Privacy("digest-only"))
    ran = samebits("replay", "--all", "--url", url, "--model", folder)
    assert (ran.returncode, "give the request itself" in ran.stderr) == (3, True)
    request = tmp_path / "request.json"
    request.write_text(json.dumps(entries["unseeded"].request))
    ran = samebits("replay", "id-unseeded", "--url", url, "--model", folder, "--request", request)
    assert (ran.returncode, ran.stdout) == (0, "1 same, 0 differ, 0 not measured\n"), ran
    request.write_text(json.dumps(entries["greedy"].request))
    ran = samebits("replay", "id-unseeded", "--url", url, "--model", folder, "--request", request)
    assert (ran.returncode, "is not the one of" in ran.stderr) == (3, True)


def test_queries_and_samples(tmp_path: Path, folder: str, entries: dict[str, Entry]) -> None:
    many = [replace(entries["greedy"], id=f"g{i}", tenant=f"t{i % 2}") for i in range(40)]
    url = ledger_of(tmp_path, *many)
    ran = samebits("replay", f"tenant=t1,model={NAME},since=1h", "--url", url, "--model", folder)
    assert (ran.returncode, ran.stdout) == (0, "20 same, 0 differ, 0 not measured\n")
    ran = samebits("replay", "tenant=t1,model=none", "--url", url, "--model", folder)
    assert (ran.returncode, "nothing was chosen" in ran.stderr) == (3, True)
    ran = samebits("replay", "--sample", "50%", "--url", url, "--model", folder)
    again = samebits("replay", "--sample", "50%", "--url", url, "--model", folder)
    assert ran == again
    # Times are part of what is drawn from: beyond these bounds once in 50 million runs.
    assert 3 < int(ran.stdout.split()[0]) < 37


def test_wrong_input_is_said_in_a_line(tmp_path: Path, entries: dict[str, Entry]) -> None:
    url = ledger_of(tmp_path, entries["greedy"])
    for arguments in (
        ("--all",),
        ("--url", url),
        ("--all", "--sample", "1%", "--url", url),
        ("--sample", "200%", "--url", url),
        ("--sample", "x", "--url", url),
        ("name=x", "--url", url),
        ("--all", "--url", url, "--config", "x.yaml", "--model", "y"),
        ("--all", "--url", url, "--together", "0"),
    ):
        ran = samebits("replay", *arguments)
        assert (ran.returncode, ran.stdout) == (2, ""), arguments
    ran = samebits("replay", "--all", "--url", url)
    assert (ran.returncode, "name the model with --model" in ran.stderr) == (3, True)


@pytest.fixture
def receipt(tmp_path: Path, entries: dict[str, Entry]) -> Path:
    """The receipt of an answer, with keys, ledger, request and answer beside it."""
    write_new(tmp_path / "keys")
    ledger_of(tmp_path, entries["unseeded"])
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.db", readonly=True) as ledger:
        [record] = ledger.records()
    (tmp_path / "receipt.json").write_bytes(receipt_of(record, read_signer(tmp_path / "keys" / PRIVATE_NAME)))
    (tmp_path / "request.json").write_text(json.dumps(entries["unseeded"].request, indent=1))
    (tmp_path / "answer.json").write_text(json.dumps(entries["unseeded"].answer, indent=1))
    return tmp_path / "receipt.json"


def test_a_receipt_verifies_and_can_be_run_again(receipt: Path, folder: str) -> None:
    here = receipt.parent
    url, key = f"sqlite:///{here}/ledger.db", here / "keys" / PUBLIC_NAME
    made = samebits("ledger", "show", "id-unseeded", "--url", url, "--receipt", "--key", here / "keys" / PRIVATE_NAME)
    assert made.stdout.strip() == receipt.read_text()
    texts = ("--request", here / "request.json", "--answer", here / "answer.json")
    ran = samebits("verify", receipt, "--key", key, "--url", url, *texts)
    assert (ran.returncode, ran.stdout.split(":")[0]) == (0, "valid"), ran
    alone = samebits("verify", receipt, "--key", key, *texts, "--rerun", "--model", folder)
    assert (alone.returncode, alone.stdout.splitlines()[-1]) == (0, "1 same, 0 differ, 0 not measured"), alone
    by_ledger = samebits("verify", receipt, "--key", key, "--url", url, "--rerun", "--model", folder)
    assert (by_ledger.returncode, by_ledger.stdout.splitlines()[-1]) == (0, "1 same, 0 differ, 0 not measured")
    moved = samebits("verify", receipt, "--key", key, "--url", url, "--rerun", "--model", folder, "--profile", "int8")
    assert (moved.returncode, "fingerprint" in moved.stdout) == (1, True)
    replayed = samebits("replay", receipt, "--key", key, "--url", url, "--model", folder)
    assert (replayed.returncode, replayed.stdout) == (0, "1 same, 0 differ, 0 not measured\n")


def test_what_does_not_belong_to_a_receipt_fails(receipt: Path) -> None:
    here, key = receipt.parent, receipt.parent / "keys" / PUBLIC_NAME
    for name in ("request", "answer"):
        path = here / f"{name}.json"
        path.write_text(path.read_text().replace("hello", "hellp").replace('"index": 0', '"index": 7'))
        ran = samebits("verify", receipt, "--key", key, f"--{name}", path)
        assert (ran.returncode, f"another {name}" in ran.stderr) == (1, True), name
    empty = f"sqlite:///{here}/empty.db"
    Ledger.open(empty).close()
    assert samebits("verify", receipt, "--key", key, "--url", empty).returncode == 1
    write_new(here / "others")
    assert samebits("verify", receipt, "--key", here / "others" / PUBLIC_NAME).returncode == 1
    receipt.write_bytes(receipt.read_bytes().replace(b"sig", b"sih"))
    assert samebits("verify", receipt, "--key", key).returncode == 1
    assert samebits("verify", receipt, "--key", here / "none").returncode == 2
    assert samebits("verify", here / "none", "--key", key).returncode == 2
    assert samebits("verify", receipt, "--key", key, "--rerun").returncode == 2


def test_an_upstreams_answer_is_not_compared_with_a_model_that_is_called_alike(
    tmp_path: Path, folder: str, entries: dict[str, Entry]
) -> None:
    of_upstream = replace(entries["greedy"], model=replace(entries["greedy"].model, asked=folder, engine="upstream"))
    here = replace(entries["greedy"], id="here", model=replace(entries["greedy"].model, asked=folder))
    url = ledger_of(tmp_path, of_upstream, replace(here, request={**here.request, "model": folder}))  # type: ignore[dict-item]
    ran = samebits("replay", "--all", "--url", url)
    assert (ran.returncode, ran.stdout) == (3, "1 same, 0 differ, 1 not measured\n"), ran
    assert "was answered by an upstream: name its server's file with --config" in ran.stderr


def test_a_record_that_was_changed_is_not_blamed_on_the_model(
    tmp_path: Path, folder: str, entries: dict[str, Entry]
) -> None:
    url = ledger_of(tmp_path, entries["greedy"], entries["seeded"])
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        connection.execute("UPDATE records SET body = replace(CAST(body AS TEXT), ?, ?) WHERE seq = 2", ("1.5", "0.5"))
        connection.execute("UPDATE records SET body = CAST(body AS BLOB) WHERE seq = 2")
        connection.commit()
    for query in (("--all",), (f"model={NAME}",)):
        ran = samebits("replay", *query, "--url", url, "--model", folder)
        assert (ran.returncode, ran.stdout) == (3, "1 same, 0 differ, 1 not measured\n"), ran
        assert "id-seeded: the record was changed since it was stored" in ran.stderr


def test_a_ledger_that_was_changed_does_not_confirm_a_receipt(receipt: Path) -> None:
    url, key = f"sqlite:///{receipt.parent}/ledger.db", receipt.parent / "keys" / PUBLIC_NAME
    assert samebits("verify", receipt, "--key", key, "--url", url).returncode == 0
    with closing(sqlite3.connect(receipt.parent / "ledger.db")) as connection:
        connection.execute("UPDATE records SET body = ?", (b"{}",))
        connection.commit()
    ran = samebits("verify", receipt, "--key", key, "--url", url)
    assert (ran.returncode, "was changed since it was stored" in ran.stderr) == (1, True)


def test_a_configuration_that_is_wrong_is_said_once(tmp_path: Path, entries: dict[str, Entry]) -> None:
    url, config = ledger_of(tmp_path, entries["greedy"], entries["seeded"]), tmp_path / "samebits.yaml"
    config.write_text('{"models": {"m": {"pth": "x"}}}')
    for path in (config, tmp_path / "none"):
        ran = samebits("replay", "--all", "--url", url, "--config", path)
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran
    ran = samebits("replay", "x" * 5000, "--url", url)
    assert (ran.returncode, "holds 0 answers" in ran.stderr) == (3, True)
