"""What a receipt tells of the fields that were computed in place of the request's: numbers as they were sent, and of
everything else, which may be a text, the digest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from samebits.ledger.canonical import canonical, digest
from samebits.ledger.entry import DIGEST
from samebits.ledger.form import restored
from samebits.ledger.spelled import Spelled, number


def is_told(body: Mapping[str, Any]) -> bool:
    """Whether the body of a record tells what was changed; those of older versions do not, or not of every field."""
    return "changes" in body and (body["changes"] is None or body.get("changes_form") is not None)


def told(body: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """By field ``origin``, and unless it was left out ``json``, the text of a number, true, false or null, or else
    ``digest``, which is null where what is stored is not what was sent. None where nothing was changed.
    """
    if not body["changes"]:
        return None
    changes: Mapping[str, Mapping[str, Any]] = restored(body["changes"], body["changes_form"])
    return {name: {"origin": change["origin"], **_value(change)} for name, change in changes.items()}


def _value(change: Mapping[str, Any]) -> dict[str, str | None]:
    if "value" not in change:
        return {}
    value = change["value"]
    if change.get("withheld"):
        known = value.get("digest") if isinstance(value, dict) and value.keys() == {"digest"} else None
        return {"digest": known if isinstance(known, str) and DIGEST.fullmatch(known) else None}
    if value is None or isinstance(value, bool | int | float):
        return {"json": value.text if isinstance(value, Spelled) else json.dumps(value)}
    return {"digest": digest(canonical(value))}


def are_told(value: object) -> bool:
    """Whether it is what ``told`` gives."""
    return value is None or (isinstance(value, dict) and bool(value) and all(map(_is_told, value.values())))


def _is_told(change: object) -> bool:
    if not isinstance(change, dict) or not isinstance(change.get("origin"), str):
        return False
    rest = change.keys() - {"origin"}
    if rest == {"json"}:
        try:
            _read(change["json"])
        except (TypeError, ValueError):
            return False
        return True
    known = change.get("digest")
    return not rest or (
        rest == {"digest"} and (known is None or (isinstance(known, str) and bool(DIGEST.fullmatch(known))))
    )


def _read(text: str) -> Any:
    value = json.loads(text, parse_float=number, parse_constant=_refuse)
    if text != text.strip():
        raise ValueError("has white space, which is not sent")
    if not (value is None or isinstance(value, bool | int | float)) or (isinstance(value, float) and math.isinf(value)):
        raise ValueError("is no number, true, false or null")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def as_recorded(changes: Mapping[str, Mapping[str, Any]] | None, words: Iterable[str] = ()) -> dict[str, Any]:
    """The members ``changes`` and ``changes_form`` of a record's body, as far as a receipt tells them.

    Args:
        words: texts that are known by their digests, since there are few of them: the levels of determinism.
    """
    if changes is None:
        return {"changes": None, "changes_form": None}
    texts = {digest(canonical(word)): word for word in words}
    known: dict[str, dict[str, Any]] = {}
    for name, change in changes.items():
        known[name] = {"origin": change["origin"]}
        if "json" in change:
            known[name]["value"] = _read(change["json"])
        elif change.get("digest") in texts:
            known[name]["value"] = texts[change["digest"]]
        elif "digest" in change:
            known[name] |= {"value": {"digest": change["digest"]}, "withheld": True}
    return {"changes": known, "changes_form": {"order": [], "numbers": {}}}
