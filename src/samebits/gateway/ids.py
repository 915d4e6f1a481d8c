"""The public id of an answer: one for each, though an upstream's may stand for several."""

from __future__ import annotations

import re
import uuid
from typing import Final

from samebits.gateway.route import Route
from samebits.ledger.routes import CHAT, COMPLETIONS, RESPONSES

_PREFIX: Final = {CHAT: "chatcmpl", COMPLETIONS: "cmpl", RESPONSES: "resp"}
_BOTH: Final = re.compile(r"(.+)\.resp-[0-9a-f]{32}")
MOST_UPSTREAM_ID: Final = 160  # characters; with what `shown_id` adds, an id of a record has 200 at most


def new_id(path: str) -> str:
    """An id that no other answer has."""
    return f"{_PREFIX.get(path, 'gen')}-{uuid.uuid4().hex}"


def shown_id(path: str, route: Route, upstream_id: object, answer_id: str) -> str:
    """The id under which an answer is handed out and recorded.

    Those of /v1/responses may be asked for again, so the upstream's id stands before our own; an answer from the cache
    has the same one there, and still an id of its own.
    """
    if path == RESPONSES and route.engine == "upstream" and isinstance(upstream_id, str):
        return f"{upstream_id}.{answer_id}"
    return answer_id


def upstream_id(shown: str) -> str:
    """What the upstream calls the answer that was handed out under an id."""
    both = _BOTH.fullmatch(shown)
    return shown if both is None else both.group(1)
