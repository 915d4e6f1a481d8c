"""An OpenAI-compatible server: vLLM, SGLang, llama.cpp, OpenAI, Azure, ours.

aiohttp carries the requests: at 0.12 ms of processor time each it leaves room for 1,500 a second beside a server on two
cores, where httpx2 needed 0.8 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import aiohttp

from samebits.audit.targets.best_tokens import fewer_best_tokens
from samebits.audit.targets.keys import ApiKey, read_key
from samebits.audit.targets.proxy import proxy_for
from samebits.audit.targets.refusal import (
    CHECK,
    NEWER_LIMIT,
    OTHERWISE,
    REMEDIES,
    is_about_request,
    refused_extra,
    refused_part,
    wants_newer_limit,
)
from samebits.audit.targets.retry import NEVER_ANSWERED, PASSING, RetryPolicy, asked_wait, backoff
from samebits.audit.targets.spec import HttpSpec
from samebits.audit.targets.target import Ask, Flight, Reply
from samebits.audit.targets.wire import (
    EventSplitter,
    MalformedError,
    StreamFailedError,
    StreamJoiner,
    best_asked,
    body_of,
    error_of,
    failure_name,
    read_json,
    reply_of,
    wanted_extras,
)
from samebits.counted import counted, verb
from samebits.errors import InputError, MeasurementError

# Below the 5 s after which common servers close an idle connection, so that no request meets a closing one.
IDLE_S: Final = 2.0
MOST_CONNECTIONS: Final = 1024
# Ways to empty the prefix cache: samebits and SGLang; vLLM in its development mode.
FLUSHES: Final = ("/flush_cache", "/reset_prefix_cache")
SHOWN: Final = 300  # characters of a server's message


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What came in place of an answer: a refusal, or nothing at all.

    Attributes:
        status: of HTTP; NEVER_ANSWERED where nothing came.
        error: OpenAI's error object, or one made of whatever came.
        wait: seconds that the server asks to wait; None where it does not.
        total_s: seconds since the request left.
        attempts: requests sent until this came of it.
    """

    status: int
    error: Mapping[str, Any]
    wait: float | None = None
    total_s: float
    attempts: int = 1


class HttpTarget:
    """A server. See ``Target``."""

    def __init__(self, spec: HttpSpec, *, timeout: float, policy: RetryPolicy | None = None) -> None:
        self.notes: dict[str, str] = {}
        self._spec = spec
        self._policy = policy or RetryPolicy()
        self._timeout = timeout
        self._key: ApiKey | None = read_key(env=spec.key_env, file=spec.key_file)
        self._model = spec.model or ""
        self._extras: frozenset[str] = frozenset()
        self._limit_name = "max_tokens"
        self._most_best: int | None = None  # best tokens; None: as many as are asked for
        self._too_many = ""  # what it said where more were asked for
        self._first_questions = 0
        self._flushes: tuple[str, ...] = FLUSHES  # those that may exist
        self._quiet_until = 0.0  # of the loop's clock: a rate limit holds for every request
        self._session: aiohttp.ClientSession | None = None

    # ---- opening -----------------------------------------------------------------------------------------------------

    async def open(self, probes: tuple[Ask, ...], known: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """See ``Target.open``."""
        # What a cache says of repetition is no measurement; only a gateway of samebits heeds the header.
        headers = {"content-type": "application/json", "user-agent": "samebits-audit", "x-samebits-cache": "bypass"}
        if self._key is not None:
            bearer = self._spec.key_header.lower() == "authorization"
            headers[self._spec.key_header] = f"Bearer {self._key.reveal()}" if bearer else self._key.reveal()
        proxy = proxy_for(self._spec.base)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MOST_CONNECTIONS, keepalive_timeout=IDLE_S),
            timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=min(10.0, self._timeout)),
            headers=headers,
            # Not by trust_env, which also reads ~/.netrc: its passwords are none of the target's business.
            trust_env=False,
            proxy=None if proxy is None else proxy.url,
            proxy_auth=None if proxy is None or proxy.user is None else aiohttp.BasicAuth(proxy.user, proxy.password),
            auto_decompress=True,
        )
        if known is None:
            if not self._model:
                self._model = await self._only_model()
            self._extras = wanted_extras(probes)
            for probe in probes:
                await self._probe(probe)
            known = {
                "model": self._model,
                "accepted": sorted(self._extras),
                "limit_name": self._limit_name,
                "first_questions": self._first_questions,
                "server": await self._server(),
                "notes": dict(self.notes),
            } | ({} if self._most_best is None else {"best_tokens": self._most_best})
        try:
            found: dict[str, Any] = dict(known)
            self._model, self._limit_name = str(found["model"]), str(found["limit_name"])
            self._extras = frozenset(found["accepted"])
            self._most_best = None if found.get("best_tokens") is None else int(found["best_tokens"])
            self.notes = dict(found["notes"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"what it holds of {self._spec.name} is damaged: {error!r}",
                field="journal",
                remedy="Name another file for a new audit.",
            ) from None
        return known

    async def _only_model(self) -> str:
        response, data = await self._simple("GET", "/models")
        if response.status != 200:
            raise self._unusable(response.status, _refusal(response, data), "finding the model by /models")
        try:
            listed = [entry["id"] for entry in read_json(data)["data"]]
        except (MalformedError, KeyError, TypeError) as error:
            raise InputError(
                "/models of the server is not in OpenAI's format", field="model", remedy="Name the model."
            ) from error
        if len(listed) != 1:
            shown = ", ".join(map(str, listed[:10])) or "none"
            raise InputError(
                f"the server has {counted(len(listed), 'model')}: {shown}", field="model", remedy="Name one of them."
            )
        return str(listed[0])

    async def _server(self) -> dict[str, str]:
        """What the server says about itself, as far as it does: the version at /version (vLLM), its `server` header."""
        try:
            response, data = await self._simple("GET", "/version", root=True)
            body = read_json(data) if response.status == 200 else None
        except (MeasurementError, MalformedError):
            return {}  # it answered the first questions; a path of other servers may do as it likes
        told = body.get("version") if isinstance(body, dict) else None
        found = {"version": told, "header": response.headers.get("server")}
        return {name: self._scrub(value)[:SHOWN] for name, value in found.items() if isinstance(value, str) and value}

    async def _probe(self, probe: Ask) -> None:
        """Finds out what the server refuses of a question: sends it until it is answered."""
        probe = replace(probe, max_tokens=16)
        while True:
            came = await self._patiently(probe, contextlib.nullcontext(), first=True)
            self._first_questions += came.attempts
            if isinstance(came, Reply):
                if came.error is not None:
                    detail = f" ({came.detail})" if came.detail else ""
                    raise MeasurementError(f"the target does not answer a first question: {came.error}{detail}")
                return
            status, error = came.status, came.error
            extra = refused_extra(status, error, self._needed(probe), self._model)
            if self._limit_name != NEWER_LIMIT and wants_newer_limit(status, error):
                self._limit_name = NEWER_LIMIT
            elif self._fewer_best_tokens(probe, status, error):
                pass
            elif extra is not None:
                self._leave_out(extra, error)
            else:
                raise self._unusable(status, error, "a first question")

    def _fewer_best_tokens(self, probe: Ask, status: int, error: Mapping[str, Any]) -> bool:
        """Asks for fewer from now on, where a refusal is about their number; returns whether it is."""
        asked = best_asked(probe, self._most_best) if "top_logprobs" in self._needed(probe) else 0
        fewer = fewer_best_tokens(asked, status, error, self._model, named_before=self._most_best is not None)
        if fewer is None:
            return False
        self._too_many = (
            self._too_many
            or f"{counted(asked, 'best token')} {verb(asked, 'is', 'are')} refused by the target ({self._said(error)})"
        )
        now = f"{fewer} asked for" if fewer else "only the log-probability of the chosen token is asked for"
        self.notes["top_logprobs"] = f"{self._too_many}; {now}"
        self._most_best = fewer
        if fewer == 0:
            self._extras -= {"top_logprobs"}
        return True

    def _leave_out(self, extra: str, error: Mapping[str, Any]) -> None:
        self._extras -= {extra}
        if extra == "logprobs":
            self._extras -= {"top_logprobs"}
            self.notes.pop("top_logprobs", None)  # what was said of their number holds no more
        self.notes[extra] = f"not accepted by the target: {self._said(error)}"

    def _needed(self, ask: Ask) -> frozenset[str]:
        return self._extras & wanted_extras((ask,))

    def _unusable(self, status: int, error: Mapping[str, Any], what: str) -> InputError | MeasurementError:
        said, part = self._said(error), refused_part(error, self._model)
        if status == 401 or (status == 403 and part is None):
            remedy = "Name a valid key by --key-env or --key-file."
            return InputError(f"the target refuses the key: {said}", field="key", remedy=remedy)
        if is_about_request(status, error, self._model):
            return InputError(
                f"the target refuses {what} (HTTP {status}): {said}",
                field="target",
                remedy=CHECK if status == 404 or status < 400 else REMEDIES.get(part or "", OTHERWISE),
            )
        answer = f"HTTP {status}" if status else "no answer"
        return MeasurementError(f"{self._spec.name} cannot be asked ({answer}) at {what}: {said}")

    # ---- asking ------------------------------------------------------------------------------------------------------

    async def ask(self, ask: Ask, flight: Flight) -> Reply:
        """See ``Target.ask``."""
        came = await self._patiently(ask, flight)
        if isinstance(came, Reply):
            return came
        name = failure_name(came.status, came.error) if came.status else str(came.error["message"])
        return Reply(
            error=self._scrub(name), detail=self._said(came.error), attempts=came.attempts, total_s=came.total_s
        )

    async def _patiently(self, ask: Ask, flight: Flight, *, first: bool = False) -> Reply | Refused:
        """Sends a question until it is answered or refused for good.

        To a first question, words about a part of it are a refusal also where the status says that it may pass.
        """
        attempt = 0
        while True:
            attempt += 1
            await self._turn()
            with flight:
                came = replace(await self._attempt(ask), attempts=attempt)
            if isinstance(came, Reply) or came.status not in PASSING or attempt >= self._policy.attempts:
                return came
            if first and is_about_request(came.status, came.error, self._model):
                return came
            if came.wait is None:
                await asyncio.sleep(backoff(attempt, self._policy))
            elif came.wait <= self._policy.patience:
                # Said to one, meant for all.
                self._quiet_until = max(self._quiet_until, asyncio.get_running_loop().time() + came.wait)
            else:
                raise MeasurementError(
                    f"the target asks to wait {came.wait:.0f} s (HTTP {came.status}); go on then with the same journal"
                )

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        while (left := self._quiet_until - loop.time()) > 0:
            await asyncio.sleep(left)

    async def _attempt(self, ask: Ask) -> Reply | Refused:
        """One request."""
        assert self._session is not None, "the target is not open"
        body = body_of(ask, self._model, self._extras, self._limit_name, most_best=self._most_best)
        started = time.perf_counter()

        def elapsed() -> float:
            return time.perf_counter() - started

        def failed(error: str, detail: str | None = None) -> Reply:
            detail = None if detail is None else self._scrub(detail)[:SHOWN]
            return Reply(error=error, detail=detail, total_s=elapsed())

        def never_answered(why: str) -> Refused:
            return Refused(status=NEVER_ANSWERED, error={"message": why}, total_s=elapsed())

        answered = False
        try:
            url = self._spec.base + "/chat/completions"
            async with self._session.post(url, data=body, params=self._spec.query, allow_redirects=False) as response:
                if response.status != 200:
                    return Refused(
                        status=response.status,
                        error=_refusal(response, await response.read()),
                        wait=asked_wait(response.headers, time.time()),
                        total_s=elapsed(),
                    )
                answered = True
                if ask.stream:
                    reply = await self._joined(response, started)
                else:
                    data = await response.read()
                    self._refuse_key(data)
                    reply = reply_of(read_json(data))
        except MalformedError as error:
            return failed(str(error))
        except StreamFailedError as error:
            return failed("the stream ended with an error", str(error))
        except aiohttp.ConnectionTimeoutError:
            return never_answered("no connection")
        except TimeoutError:
            # It may have been carried out, and paid: not sent again.
            return failed(f"no answer within {self._timeout:g} s")
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            if answered:
                return failed("the connection broke within the answer", str(error))
            lacking = isinstance(error, aiohttp.ClientConnectorError)
            return never_answered("no connection" if lacking else "the connection was closed")
        except aiohttp.ClientError as error:
            return failed(f"the answer is not HTTP: {type(error).__name__}", str(error))
        seed = ask.seed if "seed" in self._extras else None
        return replace(reply, seed_sent=seed, total_s=elapsed())

    async def _joined(self, response: aiohttp.ClientResponse, started: float) -> Reply:
        splitter, joiner, first = EventSplitter(), StreamJoiner(), None
        async for data in response.content.iter_any():
            self._refuse_key(data)
            for event in splitter.feed(data):
                if joiner.add(event) and first is None:
                    first = time.perf_counter() - started
        if not joiner.done:
            for event in splitter.end():
                joiner.add(event)
        reply = reply_of(joiner.whole())
        self._refuse_key((reply.text or "").encode("utf-8", "replace"))  # it may have come in pieces
        return replace(reply, stream_events=joiner.events, first_token_s=first)

    async def forget_prefixes(self) -> bool | None:
        """See ``Target.forget_prefixes``. Looked for only here, since it empties the cache for everybody."""
        while self._flushes:
            path = self._flushes[0]
            response, data = await self._simple("POST", path, root=True)
            if response.status == 200:
                self._flushes = (path,)
                return not _says_no_success(data)
            # By name: several requests may look for a way at once.
            self._flushes = tuple(way for way in self._flushes if way != path)
        return None

    async def close(self) -> None:
        """See ``Target.close``."""
        if self._session is not None:
            await self._session.close()

    # ---- helpers -----------------------------------------------------------------------------------------------------

    async def _simple(self, method: str, path: str, *, root: bool = False) -> tuple[aiohttp.ClientResponse, bytes]:
        assert self._session is not None, "the target is not open"
        base = self._spec.base.removesuffix("/v1") if root else self._spec.base
        try:
            async with self._session.request(
                method, base + path, params=self._spec.query, allow_redirects=False
            ) as response:
                return response, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            said = self._scrub(str(error) or type(error).__name__)
            raise MeasurementError(f"{self._spec.name} cannot be reached: {said}") from None

    def _said(self, error: Mapping[str, Any]) -> str:
        return self._scrub(str(error.get("message")))[:SHOWN]

    def _refuse_key(self, data: bytes) -> None:
        """An answer is noted as it is, so one that quotes the key is not taken for one.

        Raises:
            MalformedError: it does.
        """
        if self._key is not None and self._key.is_in(data):
            raise MalformedError("the answer holds the key, so it is not kept")

    def _scrub(self, text: str) -> str:
        return text if self._key is None else self._key.scrub(text)


def _says_no_success(data: bytes) -> bool:
    """Whether a server says that it did not do it: vLLM cannot while requests hold parts of its cache."""
    with contextlib.suppress(MalformedError):
        body = read_json(data)
        return isinstance(body, dict) and body.get("success") is False
    return False


def _refusal(response: aiohttp.ClientResponse, data: bytes) -> dict[str, Any]:
    """The error object of a response. Redirections are not followed: the key is for the address that was named."""
    if 300 <= response.status < 400:
        place = response.headers.get("location", "nowhere").partition("?")[0]
        return {"message": f"it redirects to {place}; name that address, if it is the right one", "type": None}
    return error_of(response.status, data)
