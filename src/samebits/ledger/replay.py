"""Replay: a recorded request is asked again, and the two answers are compared bit by bit.

Who answers is handed in; this module knows only records and answers as JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from samebits.errors import MeasurementError, SamebitsError
from samebits.ledger.canonical import canonical, digest, read
from samebits.ledger.causes import Again, first_difference, likely_cause
from samebits.ledger.chain import intact
from samebits.ledger.entry import Record
from samebits.ledger.form import restored
from samebits.ledger.routes import CHAT, COMPLETIONS, GENERATE, RESPONSES, names_on

Verdict = Literal["same", "differs", "not measured"]
TOGETHER: Final = 8  # requests in flight
# Effective parameters that are sent again where the request did not give them: they came from a default.
_COMMON: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
_OVERLAID: Final[Mapping[str, tuple[str, ...]]] = {
    CHAT: (*_COMMON, "presence_penalty", "frequency_penalty"),
    COMPLETIONS: (*_COMMON, "presence_penalty", "frequency_penalty"),
    RESPONSES: _COMMON,
}


@dataclass(frozen=True)
class Recorded:
    """What is needed of a record to ask again.

    Attributes:
        body: of the record (docs/guide/ledger.md); of a receipt, as much of it as that says.
        request: the full body of the request; None where it was not stored.
    """

    tenant: str
    seq: int
    id: str
    hash: str
    body: Mapping[str, Any]
    request: Mapping[str, Any] | None

    @classmethod
    def of(cls, record: Record, request: Mapping[str, Any] | None = None) -> Recorded:
        """Reads a record.

        Args:
            request: its full text, from elsewhere. It must have the recorded digest.

        Raises:
            MeasurementError: it was pruned, was changed since it was stored, or the request is not the one that was
                recorded.
        """
        if not intact(record):
            raise MeasurementError(f"{record.id}: the record was changed since it was stored; see samebits ledger fsck")
        if record.body is None:
            raise MeasurementError(f"{record.id} was pruned: its request is not there any more")
        body = read(record.body)
        wanted, stored = body["digests"]["request"], body["request"]
        if request is not None and digest(canonical(request)) != wanted:
            raise MeasurementError(f"the request given is not the one of {record.id}: its digest differs")
        if request is None and isinstance(stored, dict) and digest(canonical(stored)) == wanted:
            request = restored(stored, body["request_form"])
        return cls(record.tenant, record.seq, record.id, record.hash, body, request)

    @property
    def route(self) -> str:
        """Path of the request."""
        return str(self.body["route"])

    def again(self) -> dict[str, Any]:
        """The body to send: the one that was computed, not streamed, with the seed that was used and the parameters
        that were in effect.

        Raises:
            MeasurementError: the request, or what a policy made of it, is not known.
        """
        if self.request is None:
            raise MeasurementError(
                f"{self.id} is stored as {self.body.get('privacy')}: give the request itself with --request"
            )
        sent = dict(self.request)
        for name, change in self._changes().items():
            sent.pop(name, None)
            if "value" in change:
                sent[name] = change["value"]
        for name in ("stream", "stream_options"):
            sent.pop(name, None)
        seed = self.body["seed"]
        if seed is not None:
            self._give_seed(sent, int(seed))
        if not sent.get("use_beam_search"):  # a search takes none of them
            self._overlay(sent)
        if "changes" not in self.body:
            self._check_policy(sent)
        return sent

    def _changes(self) -> Mapping[str, Mapping[str, Any]]:
        """How the body that was computed differs from the request."""
        changes, form = self.body.get("changes"), self.body.get("changes_form")
        if changes is None:
            return {}
        withheld = sorted(name for name in changes if form is None or changes[name].get("withheld"))
        if form is None or withheld:
            named = ", ".join(f"{name} (set by {changes[name]['origin']})" for name in withheld)
            raise MeasurementError(f"{self.id}: what was sent as {named} is known by its digest at most")
        changed: Mapping[str, Mapping[str, Any]] = restored(changes, form)
        return changed

    def _check_policy(self, sent: Mapping[str, Any]) -> None:
        """Of a record made before changes were noted: what a policy set is not always what would be sent.

        Raises:
            MeasurementError: it is not.
        """
        given = (sent.get("sampling_params") or {}) if self.route == GENERATE else sent
        for name, param in self.body["params"].items():
            origin, value = str(param.get("origin")), param.get("value")
            if origin.startswith("policy ") and all(given.get(n) != value for n in names_on(self.route, name)):
                raise MeasurementError(
                    f"{self.id} was recorded by an earlier version: what the {origin} made of the request is not there"
                )

    def _give_seed(self, sent: dict[str, Any], seed: int) -> None:
        holder, name = sent, names_on(self.route, "seed")[0]
        if self.route == GENERATE:
            holder = sent["sampling_params"] = dict(sent.get("sampling_params") or {})
        if holder.get(name) is None:
            holder[name] = seed

    def _overlay(self, sent: dict[str, Any]) -> None:
        for name in _OVERLAID.get(self.route, ()):
            value, names = self.body["params"].get(name, {}).get("value"), names_on(self.route, name)
            if all(sent.get(other) is None for other in names) and isinstance(value, int | float):
                sent[names[0]] = value


@dataclass(frozen=True)
class Outcome:
    """What replaying one record gave.

    Attributes:
        difference: the first one, in words: what differs and where.
        cause: the likely one.
        reason: why there was nothing to compare.
    """

    tenant: str
    seq: int
    id: str
    verdict: Verdict
    difference: str | None = None
    cause: str | None = None
    reason: str | None = None


@dataclass
class Summary:
    """How many records gave which verdict."""

    same: int = 0
    differs: int = 0
    not_measured: int = 0

    def add(self, verdict: Verdict) -> None:
        """Counts one."""
        name = verdict.replace(" ", "_")
        setattr(self, name, getattr(self, name) + 1)


Answer = Callable[[Recorded, Mapping[str, Any]], Awaitable[Again]]


async def replay(
    records: Iterable[Record | Recorded],
    answer: Answer,
    tell: Callable[[Outcome], None],
    together: int = TOGETHER,
) -> Summary:
    """Replays records, a few at a time; memory does not depend on how many there are.

    Args:
        answer: asks a recorded request again.
        tell: is handed each outcome, in the order of the records.
        together: requests in flight.
    """
    summary, flight = Summary(), list[asyncio.Task[Outcome]]()

    async def land() -> None:
        outcome = await flight.pop(0)
        summary.add(outcome.verdict)
        tell(outcome)

    try:
        for record in records:
            flight.append(asyncio.create_task(replay_one(record, answer)))
            if len(flight) >= together:
                await land()
        while flight:
            await land()
    finally:
        for task in flight:
            task.cancel()
    return summary


async def replay_one(record: Record | Recorded, answer: Answer) -> Outcome:
    """Replays one record."""
    try:
        recorded = record if isinstance(record, Recorded) else Recorded.of(record)
        again = await answer(recorded, recorded.again())
    except SamebitsError as error:
        return Outcome(record.tenant, record.seq, record.id, "not measured", reason=str(error))
    place = (record.tenant, record.seq, record.id)
    compared = first_difference(recorded.body, again)
    if compared is None:
        return Outcome(*place, "not measured", reason="neither digests nor texts of the answer are recorded")
    if not compared.differs:
        return Outcome(*place, "same")
    return Outcome(*place, "differs", difference=compared.said, cause=likely_cause(recorded.body, again, compared))


def is_sampled(record: Record, share: float, seed: int) -> bool:
    """Whether a record belongs to a random sample; the same sample for the same seed.

    Args:
        share: of all records, 0 to 1.
    """
    drawn = hashlib.sha256(f"{seed}:{record.tenant}:{record.seq}:{record.hash}".encode()).digest()
    return int.from_bytes(drawn[:8], "big") < share * 2**64
