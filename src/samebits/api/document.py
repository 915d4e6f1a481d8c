"""What /openapi.json says of answers."""

from __future__ import annotations

from typing import Any

from samebits.api.schema_answers import ErrorAnswer

Documented = dict[int | str, dict[str, Any]]


def answers(
    model: Any, *, streams: bool = False, others: dict[int, Any] | None = None
) -> dict[int | str, dict[str, Any]]:
    """The answers of a route: ``model`` with 200, errors with everything else.

    Args:
        streams: the route can answer with server-sent events too.
        others: models of further statuses.
    """
    good: dict[str, Any] = {"model": model}
    if streams:
        good["content"] = {"text/event-stream": {}}  # its events are described in docs/guide/server.md
    documented: Documented = {200: good, "default": {"model": ErrorAnswer, "description": "Error"}}
    for status, other in (others or {}).items():
        documented[status] = {"model": other}
    return documented
