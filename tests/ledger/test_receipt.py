"""Receipts: what was signed verifies, and nothing else does; the vectors of docs/receipt.md are what we make."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from tests.ledger.conftest import DIGEST, make_entry

from samebits.errors import InputError, ReceiptInvalid
from samebits.ledger import Ledger, Privacy
from samebits.ledger.body import seal
from samebits.ledger.canonical import canonical, digest, read
from samebits.ledger.chain import Head, hash_of, link
from samebits.ledger.entry import Record
from samebits.ledger.form import lost
from samebits.ledger.keys import PRIVATE_NAME, PUBLIC_NAME, Signer, read_public, read_signer, write_new
from samebits.ledger.receipt import PAYLOAD_TYPE, envelope, pre_authentication, receipt_of, statement_of, verify
from samebits.ledger.spelled import number
from samebits.ledger.told_changes import are_told, as_recorded, told

ROOT = Path(__file__).parents[2]
SIGNER = Signer.of(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
FENCE = re.compile(r"^```json\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def vector_record() -> Record:
    """The record of docs/receipt.md: nothing about it is random."""
    digests = dict.fromkeys(("rendered_prompt", "form", "error"), None)
    digests |= {
        "answer": digest(b'{"choices":[]}'),
        "request": digest(b'{"model":"m"}'),
        "prompt_tokens": digest(b"prompt"),
        "output_tokens": digest(b"output"),
        "logprobs": digest(b"logprobs"),
    }
    changes = {
        "temperature": {"origin": "policy p", "value": 1.0},
        "stop": {"origin": "policy p", "value": ["."]},
        "logit_bias": {"origin": "model"},
    }
    body = {
        "changes": changes,
        "changes_form": lost(changes),
        "date": "2024-07-26",
        "digests": digests,
        "level": {"asked": None, "declared": "portable"},
        "model": {"asked": "m", "name": "m", "revision": None, "fingerprint": DIGEST, "engine": "embedded"},
        "route": "/v1/chat/completions",
        "seed": str(2**63 - 1),
    }
    head = Head(41, digest(b"the record before"))
    return link(head, tenant="té", id="chatcmpl-1", kind="answer", time_ns=1796039129121795916, body=canonical(body))


@pytest.fixture(scope="module")
def receipt() -> bytes:
    return receipt_of(vector_record(), SIGNER)


def test_what_was_signed_verifies(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.append([make_entry(1)])
        [record] = ledger.append([make_entry(2, level_declared="portable", seed=7)])
    found = verify(receipt_of(record, SIGNER) + b"\n", SIGNER.public)
    assert found.record == record._replace(body=None)
    assert (found.level, found.seed, found.model["fingerprint"]) == ("portable", 7, DIGEST)
    assert found.digests["request"] == digest(canonical(make_entry(2).request))
    assert found.digests["answer"] == digest(canonical(make_entry(2).answer))


def test_no_bit_can_be_changed(receipt: bytes) -> None:
    verify(receipt, SIGNER.public)
    for bit in range(8 * len(receipt)):
        altered = bytearray(receipt)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ReceiptInvalid):
            verify(bytes(altered), SIGNER.public)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all leaves of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in items for path in paths(item, (*here, key))] or [here]


STATEMENT: dict[str, Any] = statement_of(vector_record())


@pytest.mark.parametrize("path", paths(STATEMENT), ids=lambda p: ".".join(map(str, p)))
def test_no_field_can_be_altered_without_the_key(receipt: bytes, path: tuple[Any, ...]) -> None:
    outer, changed = json.loads(receipt), json.loads(json.dumps(STATEMENT))
    target = changed
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = "altered"
    outer["payload"] = base64.b64encode(canonical(changed)).decode()
    with pytest.raises(ReceiptInvalid, match="signature"):
        verify(canonical(outer), SIGNER.public)


def altered(member: str, value: Any) -> dict[str, Any]:
    return {"predicate": STATEMENT["predicate"] | {member: value}}


@pytest.mark.parametrize(
    "change",
    [
        {"_type": "x"},
        {"predicateType": "urn:samebits:receipt:3"},
        {"predicateType": "urn:samebits:receipt:1"},
        {"predicateType": None},
        {"predicate": {name: value for name, value in STATEMENT["predicate"].items() if name != "changes"}},
        *(
            {"predicate": STATEMENT["predicate"] | {"changes": changes}}
            for changes in (
                *(
                    [],
                    {},
                    {"n": None},
                    {"n": {}},
                    {"n": {"origin": 5}},
                    {"n": {"origin": "x", "json": "1", "digest": None}},
                ),
                *(
                    {"n": {"origin": "x", "json": text}}
                    for text in (5, "", "[]", '"text"', "NaN", "1e999", "1 2", " 1")
                ),
                *({"n": {"origin": "x", "digest": text}} for text in (5, "text", "sha256:00")),
                {"n": {"origin": "x", "text": "x"}},
            )
        ),
        {"subject": []},
        {"more": 1},
        {"predicate": {}},
        {"predicate": STATEMENT["predicate"] | {"record": STATEMENT["predicate"]["record"] | {"seq": 43}}},
        {"predicate": STATEMENT["predicate"] | {"record": STATEMENT["predicate"]["record"] | {"seq": "42"}}},
        {"predicate": STATEMENT["predicate"] | {"digests": STATEMENT["predicate"]["digests"] | {"answer": DIGEST}}},
        {"predicate": STATEMENT["predicate"] | {"digests": None}},
        {"predicate": STATEMENT["predicate"] | {"digests": {"answer": STATEMENT["predicate"]["digests"]["answer"]}}},
        {"predicate": STATEMENT["predicate"] | {"digests": STATEMENT["predicate"]["digests"] | {"form": 5}}},
        {"predicate": STATEMENT["predicate"] | {"model": {}}},
        {"predicate": STATEMENT["predicate"] | {"model": "m"}},
        {"predicate": STATEMENT["predicate"] | {"level": 5}},
        {"predicate": STATEMENT["predicate"] | {"seed": 1.5}},
        {"predicate": STATEMENT["predicate"] | {"seed": True}},
        *(
            {"predicate": STATEMENT["predicate"] | {"seed": seed}}
            for seed in ("abc", "12", " 9223372036854775807", "9" * 5000)
        ),
        *(
            {"predicate": STATEMENT["predicate"] | {"date": date}}
            for date in ("yesterday", "20240726", "2024-07-26T00:00")
        ),
        {"predicate": STATEMENT["predicate"] | {"record": STATEMENT["predicate"]["record"] | {"time": "9" * 5000}}},
        {"predicate": STATEMENT["predicate"] | {"record": STATEMENT["predicate"]["record"] | {"time": "٣"}}},
    ],
)
def test_a_signed_statement_must_agree_with_itself(change: dict[str, Any]) -> None:
    with pytest.raises(ReceiptInvalid):
        verify(envelope(canonical(STATEMENT | change), SIGNER), SIGNER.public)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("seq", 0),
        ("seq", -5),
        ("time", "007"),
        ("time", "-0"),
        ("id", ""),
        ("id", 'a"b'),
        ("tenant", ""),
        ("prev", "x"),
        ("body_digest", "x"),
    ],
)
def test_a_header_of_no_record_is_refused_though_its_hash_is_right(member: str, value: Any) -> None:
    """No ledger has such a record, and other verifiers would not agree on its hash."""
    assert verify(envelope(canonical(with_header({})), SIGNER), SIGNER.public).record.seq == 42, "before"
    with pytest.raises(ReceiptInvalid, match="header"):
        verify(envelope(canonical(with_header({member: value})), SIGNER), SIGNER.public)


def with_header(change: dict[str, Any]) -> dict[str, Any]:
    """The statement with another header, and the hash that belongs to it."""
    said = STATEMENT["predicate"]["record"] | change
    record = vector_record()._replace(
        **{name: said[name] for name in ("tenant", "seq", "id", "prev", "body_digest")}, time_ns=int(said["time"])
    )
    said |= {"hash": hash_of(record)}
    [answer, _] = STATEMENT["subject"]
    subjects = [answer, {"name": "record", "digest": {"sha256": said["hash"].removeprefix("sha256:")}}]
    return STATEMENT | {"subject": subjects, "predicate": STATEMENT["predicate"] | {"record": said}}


def test_a_record_that_does_not_tell_what_was_changed_has_a_receipt_of_version_1() -> None:
    """Those of older versions: without the member, or without what was withheld."""
    body = json.loads(vector_record().body or b"")
    for recorded, kind in ((body, 2), (body | {"changes": None}, 2), (body | {"changes_form": None}, 1)):
        record = link(Head(), tenant="t", id="i", kind="answer", time_ns=5, body=canonical(recorded))
        statement = statement_of(record)
        assert statement["predicateType"] == f"urn:samebits:receipt:{kind}"
        assert ("changes" in statement["predicate"]) is (kind == 2)
        found = verify(receipt_of(record, SIGNER), SIGNER.public)
        assert found.tells_changes is (kind == 2)
    del body["changes"]
    record = link(Head(), tenant="t", id="i", kind="answer", time_ns=5, body=canonical(body))
    signed = statement_of(record)
    assert not verify(envelope(canonical(signed), SIGNER), SIGNER.public).tells_changes
    signed["predicate"]["changes"] = None
    with pytest.raises(ReceiptInvalid, match="other fields"):
        verify(envelope(canonical(signed), SIGNER), SIGNER.public)


@pytest.mark.parametrize(
    "text", ["3", "0.8", "1.0", "-0.0", "1e+22", "9223372036854775807", "0.10000000000000000555", "1e-400"]
)
def test_numbers_are_told_as_they_were_sent_and_texts_by_their_digest(text: str) -> None:
    sent = json.loads(text, parse_float=number)
    entry = make_entry(
        changes={
            "a": {"origin": "policy p", "value": sent},
            "b": {"origin": "policy p", "value": "a secret"},
            "c": {"origin": "model"},
            "d": {"origin": "policy p", "value": True},
        }
    )
    for mode, known in (("full", True), ("digest-only", False)):
        body = read(seal(entry, Privacy(mode)).body)  # type: ignore[arg-type]
        changes = told(body)
        assert changes == {
            "a": {"origin": "policy p", "json": text},
            "b": {"origin": "policy p", "digest": digest(canonical("a secret"))},
            "c": {"origin": "model"},
            "d": {"origin": "policy p", "json": "true"},
        }
        assert are_told(changes)
        assert (body["changes"]["b"]["value"] == "a secret") is known
        again = as_recorded(changes)["changes"]
        assert getattr(again["a"]["value"], "text", json.dumps(again["a"]["value"])) == text
        assert again["d"] == {"origin": "policy p", "value": True}
        assert (again["b"]["withheld"], again["c"]) == (True, {"origin": "model"})
        guessed = as_recorded(changes, ("another", "a secret"))["changes"]["b"]
        assert guessed == {"origin": "policy p", "value": "a secret"}, "where there are few"


def test_what_was_redacted_is_not_told_as_if_it_had_been_sent() -> None:
    entry = make_entry(changes={"stop": {"origin": "policy p", "value": ["ada@example.org"]}})
    assert told(read(seal(entry, Privacy("redacted")).body)) == {"stop": {"origin": "policy p", "digest": None}}


def test_a_receipt_of_what_is_no_answer_is_refused() -> None:
    """Signed, with a hash that is right: the format is of answers."""
    fields = {"tenant": "t", "id": "i", "time_ns": 5, "body": vector_record().body or b""}
    for kind, good in (("answer", True), ("error", False)):
        signed = envelope(canonical(statement_of(link(Head(), kind=kind, **fields))), SIGNER)  # type: ignore[arg-type]
        if good:
            assert verify(signed, SIGNER.public).record.kind == kind
        else:
            with pytest.raises(ReceiptInvalid, match="of an answer"):
                verify(signed, SIGNER.public)


def test_the_type_of_the_payload_is_signed(receipt: bytes) -> None:
    outer = json.loads(receipt)
    other = outer | {"payloadType": "application/json"}
    with pytest.raises(ReceiptInvalid, match="no envelope"):
        verify(canonical(other), SIGNER.public)
    signature = SIGNER.sign(pre_authentication("application/json", base64.b64decode(outer["payload"])))
    forged = [{"keyid": SIGNER.public.id, "sig": base64.b64encode(signature).decode()}]
    with pytest.raises(ReceiptInvalid, match="signature"):
        verify(canonical(outer | {"signatures": forged}), SIGNER.public)


def test_half_a_pair_of_keys_is_not_left_behind(tmp_path: Path) -> None:
    write_new(tmp_path)
    (tmp_path / PRIVATE_NAME).unlink()
    public = (tmp_path / PUBLIC_NAME).read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        write_new(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [PUBLIC_NAME]
    assert (tmp_path / PUBLIC_NAME).read_bytes() == public


def test_forms_that_say_the_same_are_refused(receipt: bytes) -> None:
    outer = json.loads(receipt)
    for other in (
        json.dumps(outer).encode(),
        receipt + b" ",
        receipt + b"\n\n",
        canonical(outer | {"note": "x"}),
        canonical(outer | {"signatures": outer["signatures"] * 2}),
        canonical(outer | {"signatures": []}),
        canonical(outer | {"payload": outer["payload"] + "\n"}),
        receipt[:-1],
        b"",
        b"[]",
        b"[" * 100_000,
    ):
        with pytest.raises(ReceiptInvalid):
            verify(other, SIGNER.public)


def test_another_key_does_not_verify(receipt: bytes) -> None:
    with pytest.raises(ReceiptInvalid, match="was not signed by the key"):
        verify(receipt, Signer.new().public)


def test_only_answers_have_receipts(sqlite_url: str) -> None:
    with Ledger.open(sqlite_url) as ledger:
        [error, answer] = ledger.append([make_entry(kind="error"), make_entry()])
    for record, said in ((error, "kind error"), (answer._replace(body=None), "pruned")):
        with pytest.raises(InputError, match=said):
            receipt_of(record, SIGNER)


def test_keys_are_written_once_and_read_back(tmp_path: Path) -> None:
    signer = write_new(tmp_path / "keys")
    private, public = tmp_path / "keys" / PRIVATE_NAME, tmp_path / "keys" / PUBLIC_NAME
    assert private.stat().st_mode & 0o777 == 0o600
    assert read_signer(private).public.id == read_public(public).id == signer.public.id
    with pytest.raises(InputError, match="never overwritten"):
        write_new(tmp_path / "keys")


def test_what_is_no_key_is_refused_without_being_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    other = X25519PrivateKey.generate()
    for data in (
        b"sentinel-7431",
        b"",
        other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    ):
        path.write_bytes(data)
        for read_key in (read_signer, read_public):
            with pytest.raises(InputError) as caught:
                read_key(path)
            assert "sentinel" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_public(tmp_path / "none")


def test_the_vectors_of_the_specification(receipt: bytes) -> None:
    body, statement, whole = FENCE.findall((ROOT / "docs" / "receipt.md").read_text(encoding="utf-8"))
    assert body.encode() == vector_record().body
    assert statement.encode() == canonical(STATEMENT)
    assert whole.encode() == receipt
    outer = json.loads(whole)
    assert base64.b64decode(outer["payload"]).decode() == statement
    assert outer["payloadType"] == PAYLOAD_TYPE
    assert verify(whole.encode(), SIGNER.public).record.seq == 42
