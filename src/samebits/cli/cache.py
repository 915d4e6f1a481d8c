"""``samebits cache``: what the cache of a running server holds, and what enters a key."""

from __future__ import annotations

import contextlib
import enum
import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer

from samebits.errors import InputError

TIMEOUT_S = 30.0


class Action(enum.StrEnum):
    """What is to be done."""

    STATS = "stats"
    CLEAR = "clear"
    EXPLAIN = "explain"


def cache(
    action: Annotated[Action, typer.Argument(help="stats, clear or explain.", show_default=False)],
    request: Annotated[
        Path | None, typer.Argument(help="For explain: a file with the body of a request.", show_default=False)
    ] = None,
    url: Annotated[str, typer.Option(help="Address of the server")] = "http://127.0.0.1:8000",
    key_env: Annotated[str | None, typer.Option(help="Variable with the API key", show_default=False)] = None,
    path: Annotated[str, typer.Option(help="For explain: the route of the request")] = "/v1/chat/completions",
    policy: Annotated[
        str | None, typer.Option(help="For explain: as the header x-samebits-policy", show_default=False)
    ] = None,
) -> None:
    """Show or clear the cache of a running server, or explain the key of a request."""
    if (request is None) == (action is Action.EXPLAIN):
        raise InputError(
            f"is {'needed' if request is None else 'not taken'} by {action}",
            field="request",
            remedy="Write: samebits cache explain FILE.",
        )
    if request is None:
        method, place, body = ("GET" if action is Action.STATS else "DELETE"), "/cache", None
    else:
        from samebits.gateway.json_body import write_json

        asked = {"request": _read(request), "path": path, "policy": policy}
        method, place, body = "POST", "/cache/explain", write_json(asked)
    typer.echo(json.dumps(_ask(method, url.rstrip("/").removesuffix("/v1") + place, body, key_env), indent=2))


def _read(path: Path) -> dict[str, Any]:
    from samebits.gateway.json_body import read_json

    try:
        value = read_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error}", field="request", remedy="Name a JSON file.") from error
    if not isinstance(value, dict):
        raise InputError("is not an object", field="request", remedy="Give the body of a request.")
    return value


def _ask(method: str, url: str, body: bytes | None, key_env: str | None) -> Any:
    from samebits.audit.targets.keys import read_key

    if not url.startswith(("http://", "https://")):
        raise InputError("is no address of a server", field="url", remedy="Give http://HOST:PORT.")
    key = read_key(env=key_env, file=None)
    headers = {"content-type": "application/json"} | (
        {} if key is None else {"authorization": f"Bearer {key.reveal()}"}
    )
    try:
        asked = urllib.request.Request(url, body, headers, method=method)
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        said = ""
        with error, contextlib.suppress(OSError, http.client.HTTPException):  # the status says enough
            said = error.read().decode("utf-8", "replace")
        raise InputError(f"answers {error.code}: {said[:300]}", field="url", remedy="See the message.") from None
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        raise InputError(f"cannot be asked: {error}", field="url", remedy="Start the server, or name it.") from None
