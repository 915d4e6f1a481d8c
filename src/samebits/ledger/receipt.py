"""Receipts: an in-toto statement in a DSSE envelope, signed with Ed25519. docs/receipt.md is the specification."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, Final

from samebits.errors import InputError, ReceiptInvalid
from samebits.ledger.canonical import EXACT, canonical, read
from samebits.ledger.chain import hash_of, intact
from samebits.ledger.entry import DIGEST, MOST_TENANT, PUBLIC_ID, Digests, Record
from samebits.ledger.keys import PublicKey, Signer
from samebits.ledger.told_changes import are_told, is_told, told

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:samebits:receipt:2"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
FIRST_TYPE: Final = "urn:samebits:receipt:1"
_HEADER: Final = ("tenant", "seq", "id", "kind", "time", "prev", "body_digest", "hash")
_MEMBERS: Final = ("record", "route", "date", "model", "level", "digests", "seed")
# Those of each version. The first is made of records alone that do not tell what was changed.
_PREDICATES: Final[Mapping[str, tuple[str, ...]]] = {
    FIRST_TYPE: _MEMBERS,
    PREDICATE_TYPE: (*_MEMBERS, "changes"),
}
_MODEL: Final = ("name", "revision", "fingerprint", "engine")
_DIGESTS: Final = (*(field.name for field in fields(Digests)), "request", "answer", "error")
_TIME: Final = re.compile(r"0|-?[1-9][0-9]{0,19}")
_LARGE: Final = re.compile(r"-?[1-9][0-9]{15,4299}")  # a seed that is written as a text; Python reads 4300 digits
MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Receipt:
    """What a verified receipt says.

    Attributes:
        record: header of the ledger's record; its body is not part of a receipt.
        route: path of the request.
        date: today's date for chat templates, when it was answered.
        model: name, revision, fingerprint, engine.
        level: of determinism, as declared.
        digests: of request and answer (canonical JSON), and those of the block ``samebits``.
        seed: the one that was used.
        key_id: of the key that signed.
        tells_changes: whether it says what was computed in place of the request; those of version 1 do not.
        changes: what, by field (``samebits.ledger.told_changes``); None where nothing was.
    """

    record: Record
    route: str
    date: str | None
    model: Mapping[str, Any]
    level: str | None
    digests: Mapping[str, str | None]
    seed: int | str | None
    key_id: str
    tells_changes: bool
    changes: Mapping[str, Mapping[str, Any]] | None = None


def receipt_of(record: Record, signer: Signer) -> bytes:
    """The receipt of an answer, made of its record alone.

    Raises:
        InputError: the record is of no answer, was pruned, or was changed since it was stored.
    """
    if not intact(record):
        raise InputError(
            f"{record.id}: the record was changed since it was stored", field="id", remedy="See samebits ledger fsck."
        )
    if record.kind != "answer" or record.body is None:
        said = f"is of the kind {record.kind}" if record.kind != "answer" else "was pruned"
        raise InputError(f"{record.id} {said}", field="id", remedy="Receipts are made of answers with their bodies.")
    return envelope(canonical(statement_of(record)), signer)


def statement_of(record: Record) -> dict[str, Any]:
    """The statement that a receipt signs."""
    body = read(record.body or b"")
    digests, tells = body["digests"], is_told(body)
    subjects = [
        {"name": name, "digest": _as_subject(value)}
        for name, value in (("answer", digests["answer"]), ("record", record.hash))
        if value is not None
    ]
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE if tells else FIRST_TYPE,
        "predicate": {
            "record": {
                "tenant": record.tenant,
                "seq": record.seq,
                "id": record.id,
                "kind": record.kind,
                "time": str(record.time_ns),
                "prev": record.prev,
                "body_digest": record.body_digest,
                "hash": record.hash,
            },
            "route": body["route"],
            "date": body["date"],
            "model": {name: body["model"][name] for name in _MODEL},
            "level": body["level"]["declared"],
            "digests": digests,
            "seed": body["seed"],
            **({"changes": told(body)} if tells else {}),
        },
    }


def _as_subject(tagged: str) -> dict[str, str]:
    algorithm, _, value = tagged.partition(":")
    return {algorithm: value}


def envelope(payload: bytes, signer: Signer) -> bytes:
    """A DSSE envelope around a payload, as canonical JSON."""
    signature = signer.sign(pre_authentication(PAYLOAD_TYPE, payload))
    return canonical(
        {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": signer.public.id, "sig": base64.b64encode(signature).decode()}],
        }
    )


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """What is signed: DSSE's pre-authentication encoding, version 1."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def verify(data: bytes, key: PublicKey) -> Receipt:
    """Checks a receipt: its form, its signature, and that its parts agree.

    There is one way to write a receipt; white space, other fields or another order are refused, so that none can be
    altered in any byte and still verify. A line's end behind it is allowed.

    Raises:
        ReceiptInvalid: it fails, and why.
    """
    payload = _opened(data.removesuffix(b"\n"), key)
    statement = _json(payload, "the statement")
    if set(statement) != {"_type", "subject", "predicateType", "predicate"}:
        raise ReceiptInvalid("the statement has other fields than it must have")
    kind = statement["predicateType"]
    if statement["_type"] != STATEMENT_TYPE or not isinstance(kind, str) or kind not in _PREDICATES:
        raise ReceiptInvalid(f"it is of none of the types {', '.join(_PREDICATES)}")
    predicate = statement["predicate"]
    if not isinstance(predicate, dict) or set(predicate) != set(_PREDICATES[kind]):
        raise ReceiptInvalid("the predicate has other fields than it must have")
    _check_predicate(predicate)
    record = _record(predicate["record"])
    if hash_of(record) != record.hash:
        raise ReceiptInvalid("the record's hash is not that of its header")
    wanted = [("answer", predicate["digests"]["answer"]), ("record", record.hash)]
    expected = [{"name": name, "digest": _as_subject(value)} for name, value in wanted if value is not None]
    if statement["subject"] != expected:
        raise ReceiptInvalid("subject and predicate contradict each other")
    return Receipt(key_id=key.id, tells_changes=kind != FIRST_TYPE, **predicate | {"record": record})


def _opened(data: bytes, key: PublicKey) -> bytes:
    if len(data) > MOST_BYTES:
        raise ReceiptInvalid("it is longer than a receipt can be")
    outer = _json(data, "the envelope")
    if set(outer) != {"payload", "payloadType", "signatures"} or outer["payloadType"] != PAYLOAD_TYPE:
        raise ReceiptInvalid("it is no envelope of an in-toto statement")
    signatures = outer["signatures"]
    if not (isinstance(signatures, list) and len(signatures) == 1 and isinstance(signatures[0], dict)):
        raise ReceiptInvalid("it has not one signature")
    if set(signatures[0]) != {"keyid", "sig"}:
        raise ReceiptInvalid("the signature has other fields than it must have")
    if signatures[0]["keyid"] != key.id:
        raise ReceiptInvalid(f"it was not signed by the key {key.id}")
    payload = _base64(outer["payload"], "the payload")
    if not key.verifies(_base64(signatures[0]["sig"], "the signature"), pre_authentication(PAYLOAD_TYPE, payload)):
        raise ReceiptInvalid("the signature is not of this content")
    return payload


def _json(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
        same = isinstance(value, dict) and canonical(value) == data
    except (ValueError, RecursionError):  # InputError is a ValueError too
        same = False
    if not same:
        raise ReceiptInvalid(f"{what} is no canonical JSON")
    assert isinstance(value, dict)
    return value


def _base64(text: object, what: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or base64.b64encode(data).decode() != text:  # some bits of the last character could be anything
        raise ReceiptInvalid(f"{what} is no base64")
    return data


def _check_predicate(predicate: Mapping[str, Any]) -> None:
    """Raises ReceiptInvalid where a member is missing, or is not of its type: a key may sign what is no receipt."""
    model, digests = predicate["model"], predicate["digests"]
    good = (
        isinstance(predicate["route"], str)
        and _are_texts(predicate["date"], predicate["level"])
        and _is_seed(predicate["seed"])
        and _is_date(predicate["date"])
        and isinstance(model, dict)
        and set(model) == set(_MODEL)
        and _are_texts(*model.values())
        and isinstance(digests, dict)
        and set(digests) == set(_DIGESTS)
        and all(value is None or (isinstance(value, str) and DIGEST.fullmatch(value)) for value in digests.values())
        and are_told(predicate.get("changes"))
    )
    if not good:
        raise ReceiptInvalid("a member of the predicate is not of its form")


def _are_texts(*values: object) -> bool:
    return all(value is None or isinstance(value, str) for value in values)


def _is_seed(value: object) -> bool:
    if isinstance(value, str):
        return bool(_LARGE.fullmatch(value)) and abs(int(value)) > EXACT
    return value is None or type(value) is int


def _is_date(value: object) -> bool:
    try:
        return value is None or date.fromisoformat(str(value)).isoformat() == value
    except ValueError:
        return False


def _record(said: object) -> Record:
    if not isinstance(said, dict) or set(said) != set(_HEADER):
        raise ReceiptInvalid("the record has other fields than it must have")
    texts = [said[name] for name in _HEADER if name != "seq"]
    good = (
        all(isinstance(text, str) for text in texts)
        and type(said["seq"]) is int
        and said["seq"] > 0
        and said["kind"] == "answer"
        and _TIME.fullmatch(said["time"])
        and PUBLIC_ID.fullmatch(said["id"])
        and 0 < len(said["tenant"]) <= MOST_TENANT
        and all(DIGEST.fullmatch(said[name]) for name in ("prev", "body_digest", "hash"))
    )
    if not good:
        raise ReceiptInvalid("the record's header is not that of an answer")
    return Record(
        tenant=said["tenant"],
        seq=said["seq"],
        id=said["id"],
        kind=said["kind"],
        time_ns=int(said["time"]),
        prev=said["prev"],
        hash=said["hash"],
        body=None,
        body_digest=said["body_digest"],
    )
