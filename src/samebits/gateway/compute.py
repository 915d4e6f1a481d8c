"""An answer from a backend: sent, joined, judged, compared with what the upstream was before, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from samebits.gateway.attempts import Attempt, converge
from samebits.gateway.block import Outcome
from samebits.gateway.cache import Cache
from samebits.gateway.call import Reply
from samebits.gateway.check import check_response_id, check_shape, cut_short, texts_of
from samebits.gateway.errors import (
    BrokenOffError,
    DriftError,
    MalformedError,
    RefusedError,
    UpstreamError,
    UpstreamTimeoutError,
    stated,
)
from samebits.gateway.events import TERMINAL, read_events
from samebits.gateway.flight import Chunk
from samebits.gateway.join import Joiner
from samebits.gateway.json_body import read_answer, write_json
from samebits.gateway.plan import Plan
from samebits.gateway.record import Recorder
from samebits.gateway.route import Mode, Route
from samebits.gateway.settings import UpstreamConfig
from samebits.ledger.routes import GENERATE, RESPONSES

Emit = Callable[[Chunk], None]


class Computer:
    """Computes answers. It is called in a task that outlives the client that asked first."""

    def __init__(self, routes: Mapping[str, Route], recorder: Recorder, cache: Cache) -> None:
        self._routes, self._recorder, self._cache = routes, recorder, cache

    async def compute(self, plan: Plan, answer_id: str, emit: Emit) -> Outcome:
        """The answer of a plan, by its route or one that may step in; kept if it is complete and valid.

        Args:
            emit: takes the chunks of a stream as they come.

        Raises:
            SamebitsError: no route has one.
        """
        emitted = False

        def counted(chunk: Chunk) -> None:
            nonlocal emitted
            emitted = True
            emit(chunk)

        failure: UpstreamError | None = None
        for route in self._candidates(plan):
            mode = route.seen.mode
            try:
                outcome = await self._on(plan, route, answer_id, counted)
            except UpstreamError as error:
                if emitted or not _may_pass(error):
                    raise
                failure = failure or error
            else:
                outcome = await self._compared(plan, replace(outcome, mode=_held(mode, route.seen.mode)))
                self._keep(plan, outcome)
                return outcome
        assert failure is not None, "a plan has a route"
        raise failure

    def _candidates(self, plan: Plan) -> list[Route]:
        found = [plan.route]
        for name in plan.route.failover:
            other = self._routes[name]
            if plan.refuses(other.level):
                continue  # asked on its own it would be refused
            same = other.known_fingerprint is not None and other.known_fingerprint == plan.route.known_fingerprint
            if same or plan.chosen.policy.failover == "any":
                found.append(other)
        return found

    async def _on(self, plan: Plan, route: Route, answer_id: str, emit: Emit) -> Outcome:
        path = plan.call.path

        async def send(body: Mapping[str, Any]) -> Any:
            return await self._whole(path, route, body)

        if plan.validates and plan.check is not None:

            async def note(attempt: Attempt) -> None:
                await self._recorder.attempted(answer_id, plan, route, attempt)

            won = await converge(path, plan.body, plan.check, plan.chosen.policy.retries, send, note)
            return Outcome(won.whole, route, won.number, True, sent=None if won.number == 1 else won.body)
        whole = await (
            self._streamed(path, route, plan.body, emit) if plan.call.streams and plan.live else send(plan.body)
        )
        valid = None
        if plan.check is not None and cut_short(path, whole) is None:
            valid = all([await plan.check.problem(text) is None for text in texts_of(path, whole)])
        return Outcome(whole, route, 1, valid)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def _whole(self, path: str, route: Route, body: Mapping[str, Any]) -> Any:
        sent = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
        reply = await _send(path, route, sent)
        try:
            value = _read(b"".join([piece async for piece in reply.pieces()]))
        except BrokenOffError:
            reply.broke_off()
            raise
        finally:
            await reply.close()
        if path == GENERATE:
            return value  # of our own engine
        _raise_error(value, reply)
        return check_shape(path, value)

    async def _streamed(self, path: str, route: Route, body: Mapping[str, Any], emit: Emit) -> dict[str, Any]:
        sent = {**body, "stream": True}
        takes_options = route.upstream is None or "stream_options" not in route.upstream.refuses
        if path != RESPONSES and takes_options:  # so that the joined answer has its usage
            options = body.get("stream_options")
            sent["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        reply = await _send(path, route, sent)
        try:
            if not reply.headers.get("content-type", "").startswith("text/event-stream"):
                raise MalformedError(f"{route.name} did not answer with a stream")
            return await (_joined_response(reply, emit) if path == RESPONSES else _joined(path, reply, emit))
        except BrokenOffError:
            reply.broke_off()
            raise
        finally:
            await reply.close()

    # ---- afterwards --------------------------------------------------------------------------------------------------

    async def _compared(self, plan: Plan, outcome: Outcome) -> Outcome:
        """Notes what the upstream says it is; announces or refuses what changed."""
        route = outcome.route
        if route.upstream is None:
            return outcome
        compared = with_drift(plan, outcome)
        said = _moved(plan, outcome)
        if said is not None:
            await self._recorder.moved(plan.call, route, said)
        before = (route.seen.model, route.seen.fingerprint)
        route.seen.model = _text(outcome.whole.get("model")) or route.seen.model
        route.seen.fingerprint = _text(outcome.whole.get("system_fingerprint")) or route.seen.fingerprint
        if (route.seen.model, route.seen.fingerprint) != before:
            await self._recorder.keep_baseline(route)
        return compared

    def _keep(self, plan: Plan, outcome: Outcome) -> None:
        if plan.parts is None or outcome.valid is False or outcome.route is not plan.route:
            return
        if cut_short(plan.call.path, outcome.whole) is not None:
            return
        joined = plan.call.streams and plan.call.path != RESPONSES  # there the end of a stream is the plain answer
        if joined and "usage" not in outcome.whole and plan.route.engine == "upstream":
            return  # a plain answer would have it
        config = plan.route.upstream
        if config is not None and _unpinned(plan.route, config, outcome.whole) is not None:
            return  # its key would be that of the model that is configured
        if outcome.mode.pending:
            return  # the server may be about to say that it does not give the level
        # Under what the upstream says it is now, which the next request will look for.
        identity = plan.route.identity
        parts = plan.parts if plan.parts.identity == identity else replace(plan.parts, identity=identity)
        kept = {
            "whole": outcome.whole,
            "route": outcome.route.name,
            "attempt": outcome.attempt,
            "valid": outcome.valid,
            "sent": outcome.sent,
            "mode": outcome.mode.confirmed,
        }
        self._cache.put(parts.digest, plan.call.tenant, kept)


def _held(before: Mode, after: Mode) -> Mode:
    """What holds for an answer between whose beginning and end something became known of the mode, or unknown."""
    return before if after is before else Mode(False if after.confirmed is False else None, pending=True)


async def _send(path: str, route: Route, body: Mapping[str, Any]) -> Reply:
    named = {**body, "model": route.upstream_model} if "model" in body or route.engine == "upstream" else dict(body)
    return await route.backend.send(path, write_json(named), route.timeout)


async def _joined(path: str, reply: Reply, emit: Emit) -> dict[str, Any]:
    joiner = Joiner()
    async for chunk in read_events(reply.pieces()):
        if chunk is None:
            joiner.done = True
            await reply.drain()
            break
        _raise_error(chunk, reply)
        joiner.add(chunk)
        emit(chunk)
    return check_shape(path, joiner.whole())


async def _joined_response(reply: Reply, emit: Emit) -> dict[str, Any]:
    whole: dict[str, Any] | None = None
    async for chunk in read_events(reply.pieces()):
        if chunk is None:
            continue
        kind = chunk.get("type")
        # It becomes the name of the event, on a line of its own.
        if not isinstance(kind, str) or not kind.isprintable():
            raise MalformedError("an event of the upstream has no name")
        if kind == "error":
            raise RefusedError(502, {"error": _completed(chunk, reply)}, {})
        response = chunk.get("response")
        if isinstance(response, dict):
            check_response_id(response)  # before it is handed out: a failure after that is recorded under it
        if kind in TERMINAL:
            _raise_error(response, reply)
            whole = response if isinstance(response, dict) else None
        emit(chunk)
    if whole is None:
        raise BrokenOffError("the stream of the upstream broke off")
    return check_shape(RESPONSES, whole)


def _read(data: bytes) -> Any:
    try:
        return read_answer(data)
    except ValueError:  # NaN and lone surrogates too: neither could be sent or recorded
        if not data.rstrip().endswith(b"}"):
            raise BrokenOffError("the upstream's answer broke off, or is not JSON") from None
        raise MalformedError("the upstream's answer is not JSON") from None


def _raise_error(value: Any, reply: Reply) -> None:
    """An error that comes with status 200, or in the middle of a stream, is an error all the same."""
    if isinstance(value, dict) and (error := value.get("error")):
        said = error if isinstance(error, dict) else {"message": str(error)}
        raise RefusedError(502, {"error": _completed(said, reply)}, {})


def _completed(error: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    defaults = {"message": "the upstream failed", "type": "server_error", "param": None, "code": "upstream_error"}
    return {**defaults, **stated(error, reply.shown)}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def with_drift(plan: Plan, outcome: Outcome) -> Outcome:
    """An answer with how its upstream differs from what is expected, as the policy says; also one that was kept.

    Raises:
        DriftError: it differs, and the policy refuses that.
    """
    said = _moved(plan, outcome)
    if said is not None and plan.chosen.policy.drift == "refuse":
        raise DriftError(f"{said}; the policy {plan.chosen.name} refuses that")
    return replace(outcome, drift=said) if plan.chosen.policy.drift == "announce" else outcome


def _moved(plan: Plan, outcome: Outcome) -> str | None:
    """How an answer's statements differ from what is expected; None where they do not."""
    route = outcome.route
    config, seen = route.upstream, route.seen
    if config is None:
        return None
    if (said := _unpinned(route, config, outcome.whole)) is not None:
        return said
    model, fingerprint = _text(outcome.whole.get("model")), _text(outcome.whole.get("system_fingerprint"))
    if seen.model is not None and model is not None and model != seen.model:
        return f"alias moved: {route.name} was {seen.model}, and is {model}"
    if seen.fingerprint is not None and fingerprint is not None and fingerprint != seen.fingerprint:
        return f"fingerprint moved: {route.name} had {seen.fingerprint}, and has {fingerprint}"
    strict = plan.chosen.policy.drift == "refuse"
    if strict and config.revision is None and model is not None and model != route.upstream_model:
        return f"{route.upstream_model} is an alias: {model} answered (pin it by models.{route.name}.revision)"
    return None


def _unpinned(route: Route, config: UpstreamConfig, whole: Mapping[str, Any]) -> str | None:
    """How an answer's statements differ from what the configuration pins; None where they do not."""
    model, fingerprint = _text(whole.get("model")), _text(whole.get("system_fingerprint"))
    if config.revision is not None and model is not None and model != config.revision:
        return f"alias moved: {route.name} is configured to be {config.revision}, and {model} answered"
    if config.fingerprint is not None and fingerprint is not None and fingerprint != config.fingerprint:
        return f"fingerprint moved: {route.name} is configured to have {config.fingerprint}, and has {fingerprint}"
    return None


def _may_pass(error: UpstreamError) -> bool:
    if isinstance(error, RefusedError):
        return error.passes
    return not isinstance(error, UpstreamTimeoutError)
