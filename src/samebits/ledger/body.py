"""The body of a record: an entry as canonical JSON, as far as the privacy mode lets it through."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from samebits.errors import InputError
from samebits.ledger.canonical import canonical, digest, joined
from samebits.ledger.entry import Entry
from samebits.ledger.form import lost
from samebits.ledger.privacy import Privacy

SALT_BYTES: Final = 16  # so that the digest of a pruned body cannot be found by guessing what it was


@dataclass(frozen=True)
class Sealed:
    """An entry whose body is made; only its place in the chain is missing."""

    tenant: str
    id: str
    kind: str
    body: bytes


def seal(entry: Entry, privacy: Privacy, salt: bytes | None = None) -> Sealed:
    """Makes the body of an entry. Digests are those of the full values, whatever is stored of them.

    Args:
        salt: ``SALT_BYTES`` that nobody can guess; drawn where None.

    Raises:
        InputError: a value has no canonical form; the field is named.
    """
    try:
        return _sealed(entry, privacy, salt or secrets.token_bytes(SALT_BYTES))
    except RecursionError:
        raise InputError("is nested too deeply", field="entry", remedy="Give less than 100 levels.") from None


def _sealed(entry: Entry, privacy: Privacy, salt: bytes) -> Sealed:
    request, request_digest = _payload("request", entry.request, privacy.mode, privacy.payload)
    answer, answer_digest = _payload("answer", entry.answer, privacy.mode, privacy.payload)
    error, error_digest = _payload("error", entry.error, privacy.mode, privacy.error)
    model = dict(vars(entry.model))
    for name in ("asked", "name"):
        model[name] = None if model[name] is None else privacy.text(model[name])
    changes = None if entry.changes is None else _described(entry.changes, privacy)
    for name, change in (changes or {}).items():
        sent = (entry.changes or {})[name]
        if name == "determinism" and sent.get("value") == entry.level_asked:
            change |= sent  # a level, which the record tells in any mode
        elif change != sent:
            change["withheld"] = True  # a replay says which
    members: dict[str, object] = {
        "attempt": entry.attempt,
        "cache": entry.cache,
        "changes": changes,
        "changes_form": lost(changes),
        "date": entry.date,
        "digests": vars(entry.digests) | {"request": request_digest, "answer": answer_digest, "error": error_digest},
        "environment": entry.environment,
        "index": entry.index,
        "level": {"asked": entry.level_asked, "declared": entry.level_declared},
        "model": model,
        "params": _described(entry.params, privacy),
        "parent": entry.parent,
        "policy": entry.policy,
        "privacy": privacy.mode,
        # Members and numbers as they came; useless, and left out, where not all of the request is stored.
        "request_form": lost(entry.request) if privacy.payload(entry.request) == entry.request else None,
        "route": entry.route,
        "salt": salt.hex(),
        "seed": entry.seed,
        "timing": vars(entry.timing),
    }
    encoded = {name: _encoded(name, value) for name, value in members.items()}
    body = joined(encoded | {"request": request, "answer": answer, "error": error})
    return Sealed(entry.tenant, entry.id, entry.kind, body)


def _described(fields: Mapping[str, Mapping[str, Any]], privacy: Privacy) -> dict[str, dict[str, Any]]:
    """Fields with their origins, and of the values what may be stored."""
    return {
        name: {key: privacy.param(name, item) if key == "value" else item for key, item in described.items()}
        for name, described in fields.items()
    }


def _payload(name: str, value: Any, mode: str, kept: Any) -> tuple[bytes, str | None]:
    """What is stored of a value, and the digest of all of it; a value that is absent has none."""
    full = _encoded(name, value)
    return full if mode == "full" else _encoded(name, kept(value)), None if value is None else digest(full)


def _encoded(name: str, value: object) -> bytes:
    try:
        return canonical(value)
    except InputError as error:
        raise InputError(error.message, field=name, remedy=error.remedy) from None
