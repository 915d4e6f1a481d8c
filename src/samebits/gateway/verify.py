"""Whether an upstream that is declared to be deterministic runs in the mode that makes it so, where it tells."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from samebits.errors import InputError
from samebits.gateway.errors import UnreachableError
from samebits.gateway.levels import includes
from samebits.gateway.route import Route

if TYPE_CHECKING:
    from samebits.gateway.upstream import Upstream

log = logging.getLogger(__name__)
ASK_S: Final = 20.0  # vLLM looks at its whole system when it is asked for the first time
# Where each kind of server tells how it was started. vLLM does so only with VLLM_SERVER_DEV_MODE=1.
PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("/server_info?config_format=json",),
    "sglang": ("/server_info", "/get_server_info"),
}
REMEDY: Final[Mapping[str, str]] = {
    "vllm": "Start it with VLLM_BATCH_INVARIANT=1, or declare a weaker level.",
    "sglang": "Start it with --enable-deterministic-inference, or declare a weaker level.",
}


async def verify(route: Route, upstream: Upstream) -> None:
    """Notes in the route whether its declared level was confirmed.

    Raises:
        InputError: the server says that it does not run in that mode.
    """
    config = upstream.config
    if not includes(config.level, "batch") or config.api not in PLACES:
        return
    said: bool | None = None
    for place in PLACES[config.api]:
        try:
            said = mode_of(config.api, await upstream.ask(config.root + place, ASK_S))
        except UnreachableError as error:
            log.warning("%s: its level %s could not be verified: %s", route.name, config.level, error)
            return
        if said is not None:
            break
    if said is False:
        raise InputError(
            f"is {config.level!r}, but the server does not run in its deterministic mode",
            field=f"models.{route.name}.level",
            remedy=REMEDY[config.api],
        )
    if said is None:
        log.warning("%s: its level %s is declared, and the server does not tell", route.name, config.level)
    route.seen.verified = said
    upstream.when_lost = route.seen.forget_mode


def mode_of(api: str, info: Any) -> bool | None:
    """Whether the server's own description says that its deterministic mode is on; None where it says nothing."""
    value = _find(info, "VLLM_BATCH_INVARIANT" if api == "vllm" else "enable_deterministic_inference")
    if isinstance(value, str):
        return value.strip().lower() in ("1", "true")
    return bool(value) if isinstance(value, bool | int) else None


def _find(info: Any, name: str) -> Any:
    """The value of a key at any depth; servers move theirs from version to version."""
    if isinstance(info, dict):
        if name in info:
            return info[name]
        parts = list(info.values())
    else:
        parts = info if isinstance(info, list) else []
    return next((found for part in parts if (found := _find(part, name)) is not None), None)
