"""Whether an upstream that is declared to be deterministic runs in the mode that makes it so, where it tells."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from samebits.errors import InputError
from samebits.gateway.errors import UnreachableError
from samebits.gateway.levels import includes
from samebits.gateway.route import Mode, Route
from samebits.gateway.settings import UpstreamConfig

if TYPE_CHECKING:
    from samebits.gateway.upstream import Upstream

log = logging.getLogger(__name__)
ASK_S: Final = 20.0  # vLLM looks at its whole system when it is asked for the first time
LOST_S: Final = 5.0  # a server that was lost is asked so often whether it is back; sooner when a request is answered
AGAIN_S: Final = 60.0  # one that was started anew while nobody asked it anything was not seen to be lost
_SAID: Final[Mapping[bool | None, str]] = {
    True: "%s: it says that it runs in its deterministic mode; its level %s is verified",
    False: "%s: it says that it does not run in its deterministic mode; its level is no longer %s",
    None: "%s: its level %s is declared, and the server does not tell",
}
# Where each kind of server tells how it was started. vLLM does so only with VLLM_SERVER_DEV_MODE=1.
PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("/server_info?config_format=json",),
    "sglang": ("/server_info", "/get_server_info"),
}
REMEDY: Final[Mapping[str, str]] = {
    "vllm": "Start it with VLLM_BATCH_INVARIANT=1, or declare a weaker level.",
    "sglang": "Start it with --enable-deterministic-inference, or declare a weaker level.",
}


class Verifier:
    """Asks one upstream for its mode: before the server runs, and while it runs each time that it was lost and answers
    again, and now and then besides. No request waits for it.
    """

    def __init__(self, route: Route, upstream: Upstream) -> None:
        self._route, self._upstream = route, upstream
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def first(self) -> None:
        """Asks before the server runs.

        Raises:
            InputError: the server says that it does not run in its mode.
        """
        try:
            said = await self._said()
        except UnreachableError as error:
            log.warning("%s: its level %s could not be verified: %s", self._route.name, self._route.declared, error)
            self._route.seen.mode = Mode(pending=True)
            return
        if said is False:
            raise InputError(
                f"is {self._route.declared!r}, but the server does not run in its deterministic mode",
                field=f"models.{self._route.name}.level",
                remedy=REMEDY[self._upstream.config.api],
            )
        if said is None:
            log.warning(_SAID[None], *self._names)
        self._route.seen.mode = Mode(said)

    def start(self) -> None:
        """Watches from now on, in the event loop that runs."""
        self._upstream.when_lost, self._upstream.when_heard = self._lost, self._heard
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Ends the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _lost(self) -> None:
        if not self._route.seen.mode.pending:
            log.warning("%s: it was lost; its level %s is not verified until it says so again", *self._names)
        # A new one: what the server is just saying may be of the old process.
        self._route.seen.mode = Mode(pending=True)
        self._woken.set()

    def _heard(self) -> None:
        if self._route.seen.mode.pending:
            self._woken.set()

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOST_S if self._route.seen.mode.pending else AGAIN_S):
                    await self._woken.wait()
            self._woken.clear()
            before = self._route.seen.mode
            try:
                said = await self._said()
            except UnreachableError:
                if before is self._route.seen.mode and not before.pending:
                    self._lost()
                continue
            now = self._route.seen.mode
            if now is before and (now.pending or now.confirmed is not said):
                if now.confirmed:
                    self._route.seen.unseen += 1
                self._route.seen.mode = Mode(said)
                log.warning(_SAID[said], *self._names)

    @property
    def _names(self) -> tuple[str, str]:
        return self._route.name, self._route.declared

    async def _said(self) -> bool | None:
        api, root = self._upstream.config.api, self._upstream.config.root
        for place in PLACES[api]:
            if (said := mode_of(api, await self._upstream.ask(root + place, ASK_S))) is not None:
                return said
        return None


def is_verifiable(config: UpstreamConfig) -> bool:
    """Whether a level is declared that needs a mode, of a server that may tell of it."""
    return includes(config.level, "batch") and config.api in PLACES


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
