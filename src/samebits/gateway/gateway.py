"""The life of a request: planned, looked up, computed once for all who ask the same, judged, recorded, answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from samebits.errors import InputError, LedgerError, SamebitsError
from samebits.gateway.block import Outcome, block_of, level_of
from samebits.gateway.cache import Cache
from samebits.gateway.call import Call
from samebits.gateway.check import Check, policy_check
from samebits.gateway.compute import Computer, with_drift
from samebits.gateway.errors import RefusedError, UpstreamError
from samebits.gateway.events import DONE, named_event, plain_event
from samebits.gateway.flight import Flight, Flights
from samebits.gateway.ids import new_id, shown_id
from samebits.gateway.join import chunks_of
from samebits.gateway.levels import Level, includes
from samebits.gateway.own_ids import OwnIds
from samebits.gateway.plan import Plan, blamed, make_plan, unmet
from samebits.gateway.policy import PLAIN_NAME, Policy, choose
from samebits.gateway.record import Recorder
from samebits.gateway.response_events import events_of
from samebits.gateway.route import Mode, Route
from samebits.gateway.settings import TenantConfig
from samebits.gateway.stream import Stream, late
from samebits.ledger.routes import RESPONSES

log = logging.getLogger(__name__)
CACHE_HEADER: Final = "x-samebits-cache"
RECORD_S: Final = 2.0  # that a client waits for the record of an error; the entry itself goes on to wait
REASON_HEADER: Final = "x-samebits-cache-reason"


@dataclass(frozen=True)
class Whole:
    """An answer in one piece."""

    body: Any
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Live:
    """An answer in pieces.

    Attributes:
        pieces: events as bytes.
        named: whether events have names, as those of /v1/responses.
        close: to be called when nothing more is wanted, whether it was read to its end or not.
    """

    pieces: AsyncIterator[bytes]
    headers: Mapping[str, str]
    named: bool
    close: Callable[[], None]


class Gateway:
    """Routes, policies and a cache, put together. Belongs to one event loop.

    Args:
        routes: by the names that clients use.
        known: all policies.
        describe: from an error to its object, for records.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        known: Mapping[str, Policy],
        tenants: Mapping[str, TenantConfig],
        cache: Cache,
        describe: Callable[[Exception], Mapping[str, Any]],
        *,
        policy: str | None = None,
        level: Level | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.routes, self.known, self.cache = routes, known, cache
        self.recorder = recorder or Recorder()
        self._tenants, self._policy, self._level, self._describe = tenants, policy, level, describe
        self._checks: dict[str, Check | None] = {
            name: policy_check(rules, f"policies.{name}") for name, rules in known.items()
        }
        self._flights: Flights[Outcome] = Flights()
        self._computer = Computer(routes, self.recorder, cache)
        self._own_ids = OwnIds(self.recorder)
        self._notes: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Waits for records of requests whose clients are gone."""
        await asyncio.gather(*self._notes, return_exceptions=True)

    def is_needed(self, tenant: str) -> bool:
        """Whether requests of a tenant that name no policy can be changed, kept, recorded or sent elsewhere."""
        own = self._tenants.get(tenant)
        named = [own.policy if own else None, self._policy, *(route.policy for route in self.routes.values())]
        upstream = any(route.engine == "upstream" for route in self.routes.values())
        chains = any(route.failover or route.stronger for route in self.routes.values())
        return upstream or chains or self.recorder.is_on or any(name not in (None, PLAIN_NAME) for name in named)

    def plan(self, call: Call) -> Plan:
        """How a call would be answered.

        Raises:
            InputError: it would be refused.
        """
        route = self.routes[call.body["model"]]
        tenant = self._tenants.get(call.tenant)
        chosen = choose(self.known, header=call.policy, tenant=tenant, model=route.policy, server=self._policy)
        asked = call.body.get("determinism") or chosen.policy.level
        if route.stronger is not None and asked in ("run", "batch", "portable") and not includes(route.level, asked):
            route = self.routes[route.stronger]
        return make_plan(call, route, chosen, self._checks[chosen.name], self._level)

    async def answer(self, call: Call) -> Whole | Live:
        """Answers a call whose model is one of the routes.

        Raises:
            SamebitsError: there is no answer. That is in the ledger then.
        """
        plan: Plan | None = None
        answer_id = new_id(call.path)
        try:
            plan = self.plan(call)
            async with self._own_ids.taken(call):
                return await self._answered(plan, answer_id)
        except asyncio.CancelledError:
            self._note(self.recorder.failed(answer_id, call, plan, None, cancelled=True))
            raise
        except SamebitsError as raised:
            error = raised if plan is None else blamed(plan, raised)
            await self._failed(answer_id, call, plan, error)
            raise error from None

    async def failed(self, answer_id: str, plan: Plan, error: SamebitsError) -> None:
        """Records that a request failed after its answer had begun."""
        await self._failed(answer_id, plan.call, plan, error)

    async def _failed(self, answer_id: str, call: Call, plan: Plan | None, error: SamebitsError) -> None:
        """Records an error. Where that cannot be done, or takes long, the client is told it all the same: what a model
        said is given out with it only where that is recorded as an attempt.
        """
        try:
            async with asyncio.timeout(RECORD_S):
                await self.recorder.failed(answer_id, call, plan, self._describe(error))
        except LedgerError as failure:
            log.warning("an error is not recorded: %s", failure)
        except TimeoutError:
            log.warning("an error is not recorded yet: the ledger did not take it within %g s", RECORD_S)

    # ---- the cache, and who computes ---------------------------------------------------------------------------------

    async def _answered(self, plan: Plan, answer_id: str) -> Whole | Live:
        key = None if plan.parts is None else plan.parts.digest
        # An answer under way is shared among those who take it on the same terms: it may come from another route, or
        # from an upstream that moved.
        policy = plan.chosen.policy
        joint = None if key is None else f"{key} {policy.failover} {policy.drift}"
        refresh = plan.call.cache == "refresh"
        try:
            async with asyncio.timeout(plan.route.timeout) as limit:
                while True:
                    if key is not None and not refresh and (entry := self.cache.get(key)) is not None:
                        return await self._from_whole(plan, answer_id, self._stored(plan, entry.read()), "hit")
                    flight = None if joint is None or refresh else self._flights.find(joint)
                    if flight is None:
                        return await self._lead(plan, answer_id, joint, limit)
                    flight.enter()
                    try:
                        outcome = await flight.result()
                    except (UpstreamError, asyncio.CancelledError) as error:
                        if not _is_passing(error):
                            raise
                        continue  # who led met a failure that may pass: somebody else tries
                    finally:
                        flight.leave()
                    return await self._from_whole(plan, answer_id, outcome, "shared")
        except TimeoutError:
            raise late(plan) from None

    async def _lead(self, plan: Plan, answer_id: str, key: str | None, limit: asyncio.Timeout) -> Whole | Live:
        status = _status(plan)
        flight: Flight[Outcome] = Flight(partial(self._computer.compute, plan, answer_id))
        flight.enter()
        flight.when_over(lambda: None)
        if key is not None:
            self._flights.add(key, flight)
        try:
            if plan.call.streams and plan.live:
                chunks = flight.chunks()
                first = await anext(chunks, None)
                if first is not None:
                    flight.enter()  # for the stream; what follows leaves for this function
                    stream = Stream(self, plan, answer_id, flight, status, limit.when())
                    pieces = stream.pieces(first, chunks)
                    return Live(pieces, _headers(plan, status), plan.call.path == RESPONSES, stream.close)
            outcome = await flight.result()
        finally:
            flight.leave()
        return await self._from_whole(plan, answer_id, outcome, status)

    def _stored(self, plan: Plan, kept: Mapping[str, Any]) -> Outcome:
        route = self.routes[kept["route"]]
        outcome = Outcome(
            kept["whole"], route, kept["attempt"], kept["valid"], sent=kept["sent"], mode=Mode(kept["mode"])
        )
        return with_drift(plan, outcome)

    # ---- answers -----------------------------------------------------------------------------------------------------

    async def _from_whole(self, plan: Plan, answer_id: str, outcome: Outcome, cache: str) -> Whole | Live:
        """An answer that is there as a whole, in the form that the client wants; recorded before a byte is sent."""
        headers = _headers(plan, cache)
        if isinstance(outcome.whole, list) or "meta_info" in outcome.whole:
            native = await self._native(plan, outcome, cache)
            if not plan.call.streams:
                return Whole(native, headers)
            # Each event holds the answer so far, so one that holds all of it is a stream.
            parts = [{**part, "index": i} for i, part in enumerate(native)] if isinstance(native, list) else [native]
            return Live(_written([*map(plain_event, parts), DONE]), headers, False, lambda: None)
        answer = await self.finished(plan, answer_id, outcome, cache, None)
        if not plan.call.streams:
            return Whole(answer, headers)
        if plan.call.path == RESPONSES:
            return Live(_written([*map(named_event, events_of(answer))]), headers, True, lambda: None)
        chunks = chunks_of(plan.call.path, answer, usage=plan.wants_usage)
        return Live(_written([*map(plain_event, chunks), DONE]), headers, False, lambda: None)

    async def finished(
        self, plan: Plan, answer_id: str, outcome: Outcome, cache: str, first_token: float | None
    ) -> dict[str, Any]:
        """The answer as it is sent, after it is in the ledger.

        Raises:
            InputError: it is not of the level that it must have; that became known while it was computed.
            LedgerError: it cannot be stored.
        """
        if plan.refuses(level := level_of(plan, outcome)):
            raise unmet(plan.level_asked, level, outcome.route)
        answer_id = shown_id(plan.call.path, plan.route, outcome.whole.get("id"), answer_id)
        block = block_of(plan, outcome, cache, self.recorder.receipt_of(answer_id, plan))
        answer = {**outcome.whole, "id": answer_id}
        if answer.get("system_fingerprint", "") is None:
            del answer["system_fingerprint"]
        if block["fingerprint"] is not None and "system_fingerprint" not in answer and plan.call.path != RESPONSES:
            answer["system_fingerprint"] = block["fingerprint"]
        answer["samebits"] = block
        await self.recorder.answered(answer_id, plan, outcome, answer, block, first_token)
        log.debug("%s: by %s, policy %s, cache %s", answer_id, outcome.route.name, plan.chosen.name, cache)
        return answer

    async def _native(self, plan: Plan, outcome: Outcome, cache: str) -> Any:
        """Answers of /generate: one, or a list of them, each with an id of its own."""
        listed = isinstance(outcome.whole, list)
        answers: list[dict[str, Any]] = outcome.whole if listed else [outcome.whole]
        for index, answer in enumerate(answers):
            meta = answer["meta_info"]
            part = Outcome(meta, outcome.route)
            block = block_of(plan, part, cache, self.recorder.receipt_of(meta["id"], plan))
            meta["samebits"] = block
            await self.recorder.answered(meta["id"], plan, part, answer, block, None, index if listed else None)
        return outcome.whole

    def cancelled(self, answer_id: str, plan: Plan) -> None:
        """Sees to it that it is recorded that the client of a stream went away."""
        self._note(self.recorder.failed(answer_id, plan.call, plan, None, cancelled=True))

    def _note(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._notes.add(task)
        task.add_done_callback(self._noted)

    def _noted(self, task: asyncio.Task[None]) -> None:
        self._notes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # nobody is there to be told
            log.warning("a request that ended without an answer is not recorded: %s", error)


def _headers(plan: Plan, cache: str) -> dict[str, str]:
    reason = {REASON_HEADER: plan.why_not} if cache == "bypass" and plan.why_not is not None else {}
    return {CACHE_HEADER: cache, **reason}


def _status(plan: Plan) -> str:
    if plan.parts is None:
        return "off" if plan.why_not == "off" else "bypass"
    return "refresh" if plan.call.cache == "refresh" else "miss"


def _is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed when another one sends it."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()  # it was not us who was cancelled
    return not isinstance(error, RefusedError) or error.passes


async def _written(events: list[bytes]) -> AsyncIterator[bytes]:
    yield b"".join(events)


def find_route(routes: Mapping[str, Route], model: object) -> Route | None:
    """The route of a model's name as it stands in a body."""
    return routes.get(model) if isinstance(model, str) else None


def check_routes(routes: Mapping[str, Route]) -> None:
    """Refuses a configuration whose routes name others that are not there.

    Raises:
        InputError: names the key.
    """
    for name, route in routes.items():
        for key, others in (("failover", route.failover), ("stronger", (route.stronger,) if route.stronger else ())):
            for other in others:
                if other not in routes or other == name:
                    raise InputError(
                        f"{other!r:.80} is no other model",
                        field=f"models.{name}.{key}",
                        remedy=f"Use some of: {', '.join(n for n in routes if n != name) or 'none'}.",
                    )
