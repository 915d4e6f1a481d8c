"""Models that answer recorded requests: the server's own application, called in this process without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from samebits.counted import counted
from samebits.errors import InputError, MeasurementError
from samebits.gateway.json_body import write_json
from samebits.gateway.policy import PLAIN_NAME
from samebits.ledger.causes import Again
from samebits.ledger.environment import environment_id
from samebits.ledger.replay import Recorded

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message

    from samebits.api.config import ServerConfig
    from samebits.llm import LLM

PROFILES: Final = ("bf16", "fp32", "int8")
MOST_OPEN: Final = 2  # models in memory
# An answer from the cache would prove nothing; what a policy did to the request is in what is sent.
AS_IT_IS: Final = ((b"x-samebits-cache", b"bypass"), (b"x-samebits-policy", PLAIN_NAME.encode()))
_SCOPE: Final[Mapping[str, Any]] = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "query_string": b"",
    "root_path": "",
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 80),
}


@dataclass(frozen=True)
class Source:
    """Where models come from.

    Attributes:
        config: the file of a server; it decides everything, the date included.
        model: else this path, for all records.
        profile: of that model; found by the recorded fingerprint where it is None.
    """

    config: Path | None = None
    model: str | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        if self.config is not None and (self.model is not None or self.profile is not None):
            raise InputError("names models itself", field="config", remedy="Leave --model and --profile out.")
        if self.config is not None:  # what is wrong with it is said once, and not of every record
            self.settings()

    def settings(self) -> ServerConfig:
        """The configuration, without what is not for a replay: its ledger and tenants, since what is replayed is no
        answer to anybody, and a policy of its own named as the one under which nothing is changed once more.

        Raises:
            InputError: the file is wrong.
        """
        from samebits.api.config import make_config, read_config

        assert self.config is not None
        values = read_config(self.config)
        for name in ("ledger", "tenants"):
            values.pop(name, None)
        if isinstance(own := values.get("policies"), dict):
            own.pop(PLAIN_NAME, None)
        return make_config(values)


@dataclass
class Answering:
    """Answers recorded requests; models are loaded when they are needed, and the oldest of several is closed."""

    source: Source
    _apps: dict[Any, _App] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, recorded: Recorded, body: Mapping[str, Any]) -> Again:
        """Sends the body to the model of a record.

        Raises:
            SamebitsError: there is no such model here, or it answers with an error.
        """
        async with self._lock:
            app = await self._app(recorded)
            app.users += 1
        try:
            status, answer = await post(app.app, recorded.route, body, AS_IT_IS)
        finally:
            app.users -= 1
        if status == 200 and isinstance(answer, list):
            answer = _one_of(answer, recorded)
        if status != 200 or not isinstance(answer, dict):
            said = answer.get("error", {}).get("message", "") if isinstance(answer, dict) else ""
            raise MeasurementError(f"asked again, {recorded.id} is answered with {status}: {said}")
        block = answer.get("samebits") or answer.get("meta_info", {}).get("samebits") or {}
        return Again(
            answer,
            block,
            fingerprint=answer.get("system_fingerprint") or block.get("fingerprint"),
            model=(block.get("gateway") or {}).get("model") or answer.get("model"),
            date=app.date,
            environment=environment_id(),
        )

    async def _app(self, recorded: Recorded) -> _App:
        asked = recorded.body["model"]["asked"]
        if recorded.body["model"]["engine"] == "upstream" and self.source.config is None and self.source.model is None:
            raise MeasurementError(f"{recorded.id} was answered by an upstream: name its server's file with --config")
        fingerprint, date = recorded.body["model"]["fingerprint"], recorded.body["date"]
        key = "config" if self.source.config is not None else (asked, fingerprint, date)
        if key not in self._apps:
            while len(self._apps) >= MOST_OPEN:
                await self._close_one()
            app = await asyncio.to_thread(self._make, asked, fingerprint, date)
            await app.stack.enter_async_context(app.app.router.lifespan_context(app.app))
            self._apps[key] = app
        return self._apps[key]

    def _make(self, asked: str, fingerprint: str | None, date: str | None) -> _App:
        from samebits.api.app import load_models, make_app
        from samebits.api.config import make_config

        if self.source.config is not None:
            config = self.source.settings()
            return _App(make_app(config, load_models(config)), config.date.isoformat(), [])
        path = self.source.model or asked
        llm = self._load(path, fingerprint)
        values = {"models": {asked: {"path": path, "profile": llm.profile}}} | ({"date": date} if date else {})
        config = make_config(values)
        return _App(make_app(config, {asked: llm}), config.date.isoformat(), [llm])

    def _load(self, path: str, fingerprint: str | None) -> LLM:
        """The model, under the profile that has the fingerprint; where none has it, under the first."""
        from samebits.llm import LLM

        first: LLM | None = None
        for profile in PROFILES if self.source.profile is None else (self.source.profile,):
            try:
                llm = LLM(path, profile)
            except InputError as error:
                raise MeasurementError(f"{error} Or name the model with --model or --config.") from error
            if fingerprint is None or llm.fingerprint == fingerprint:
                if first is not None:
                    first.close()
                return llm
            if first is None:
                first = llm
            else:
                llm.close()
        assert first is not None
        return first

    async def _close_one(self) -> None:
        key = next(iter(self._apps))
        app = self._apps.pop(key)
        while app.users:
            await asyncio.sleep(0.01)
        await app.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._apps:
            await self._close_one()


def _one_of(answers: list[Any], recorded: Recorded) -> Any:
    index = recorded.body.get("index")
    if not isinstance(index, int) or index >= len(answers):
        raise MeasurementError(
            f"{recorded.id} is one of {counted(len(answers), 'answer')} to one request; which is not recorded"
        )
    return answers[index]


@dataclass
class _App:
    """An application that runs, the models that are its alone, and how many requests it answers now."""

    app: Any
    date: str
    llms: list[LLM]
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    users: int = 0

    async def close(self) -> None:
        await self.stack.aclose()
        for llm in self.llms:
            llm.close()


async def post(
    app: ASGIApp, path: str, body: Mapping[str, Any], also: tuple[tuple[bytes, bytes], ...] = ()
) -> tuple[int, Any]:
    """One request to an application, with headers beside the usual ones; returns status and JSON of the response."""
    data = write_json(body)
    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        *also,
    ]
    messages: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]
    status, pieces = 0, list[bytes]()

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.Future[Any]()

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            pieces.append(message.get("body", b""))

    scope = {**_SCOPE, "path": path, "raw_path": path.encode(), "headers": headers, "state": {}}
    await app(scope, receive, send)
    try:
        return status, json.loads(b"".join(pieces))
    except ValueError:
        raise MeasurementError(f"{path} answers with {status} and no JSON") from None
