"""From answers to entries of the ledger."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samebits.gateway.attempts import Attempt
from samebits.gateway.block import Outcome, block_of, fingerprint_of, params_of
from samebits.gateway.call import Call
from samebits.gateway.changes import changes_of
from samebits.gateway.ids import shown_id
from samebits.gateway.plan import Plan, seed_of
from samebits.gateway.route import Route
from samebits.ledger import Digests, Entry, ModelRef, Timing

if TYPE_CHECKING:
    from samebits.ledger import AsyncLedger
    from samebits.ledger.keys import Signer


@dataclass(frozen=True)
class Recorder:
    """Writes entries, where there is a ledger.

    Attributes:
        receipts: whether answers name one.
        date: today's date for chat templates.
        environment: of this process.
        signer: signs receipts.
    """

    ledger: AsyncLedger | None = None
    receipts: bool = True
    date: str | None = None
    environment: str | None = None
    signer: Signer | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is a ledger."""
        return self.ledger is not None

    def receipt_of(self, answer_id: str, plan: Plan) -> str | None:
        """The id of the receipt of an answer: that of its record."""
        return answer_id if self.is_on and self.receipts and plan.chosen.policy.receipt else None

    async def answered(
        self,
        answer_id: str,
        plan: Plan,
        outcome: Outcome,
        answer: Mapping[str, Any],
        block: Mapping[str, Any],
        first_token: float | None,
        index: int | None = None,
    ) -> None:
        """Stores an answer; returns when the disk has it.

        Args:
            index: which of several answers to the request it is.

        Raises:
            LedgerError: it cannot be stored.
        """
        if self.ledger is None:
            return
        await self.ledger.add(
            Entry(
                id=answer_id,
                tenant=plan.call.tenant,
                kind="answer",
                route=plan.call.path,
                model=_model(plan.call, outcome.route, outcome),
                level_asked=plan.level_asked,
                level_declared=block.get("level"),
                request=plan.call.body,
                changes=changes_of(plan, outcome),
                params=block.get("params") or {},
                seed=block.get("seed"),
                digests=_digests(block),
                answer=dict(answer),
                cache=block["gateway"]["cache"],
                attempt=outcome.attempt,
                index=index,
                policy=plan.chosen.name,
                timing=Timing(first_token=first_token, total=time.perf_counter() - plan.call.arrived),
                date=self.date,
                environment=self.environment,
            )
        )

    async def attempted(self, parent: str, plan: Plan, route: Route, attempt: Attempt) -> None:
        """Stores one attempt of several.

        Raises:
            LedgerError: it cannot be stored.
        """
        if self.ledger is None:
            return
        outcome = Outcome(attempt.whole, route, attempt.number, attempt.problem is None)
        block = block_of(plan, outcome, "miss", None)
        if attempt.problem is None:
            parent = shown_id(plan.call.path, plan.route, attempt.whole.get("id"), parent)
        await self.ledger.add(
            Entry(
                id=f"{parent}.{attempt.number}",
                tenant=plan.call.tenant,
                kind="attempt",
                parent=parent,
                attempt=attempt.number,
                route=plan.call.path,
                model=_model(plan.call, route, outcome),
                level_asked=plan.level_asked,
                level_declared=plan.level,
                request=dict(attempt.body),
                params=params_of(plan, attempt.body, attempt.number),
                seed=seed_of(plan.call.path, attempt.body),
                digests=_digests(block),
                answer=attempt.whole,
                error=None if attempt.problem is None else {"code": "not_valid", "message": attempt.problem},
                policy=plan.chosen.name,
                date=self.date,
                environment=self.environment,
            )
        )

    async def failed(
        self,
        answer_id: str,
        call: Call,
        plan: Plan | None,
        error: Mapping[str, Any] | None,
        *,
        cancelled: bool = False,
    ) -> None:
        """Stores that there is no answer, and why.

        Raises:
            LedgerError: it cannot be stored.
        """
        if self.ledger is None:
            return
        asked = call.body.get("model")
        model = _model(call, plan.route, None) if plan else ModelRef(asked=asked if isinstance(asked, str) else "")
        await self.ledger.add(
            Entry(
                id=answer_id,
                tenant=call.tenant,
                kind="cancelled" if cancelled else "error",
                route=call.path,
                model=model,
                level_asked=plan.level_asked if plan else None,
                request=call.body,
                changes=changes_of(plan) if plan else None,
                params=params_of(plan, plan.body) if plan else {},
                seed=seed_of(plan.call.path, plan.body) if plan else None,
                error=dict(error) if error else None,
                policy=plan.chosen.name if plan else None,
                timing=Timing(total=time.perf_counter() - call.arrived),
                date=self.date,
                environment=self.environment,
            )
        )

    async def moved(self, call: Call, route: Route, said: str) -> None:
        """Stores that another model answers under a name than before.

        Raises:
            LedgerError: it cannot be stored.
        """
        if self.ledger is None:
            return
        await self.ledger.add(
            Entry(
                id=f"alias-{uuid.uuid4().hex}",
                tenant=call.tenant,
                kind="alias",
                route=call.path,
                model=_model(call, route, None),
                answer={"said": said, "model": route.seen.model, "fingerprint": route.seen.fingerprint},
                environment=self.environment,
            )
        )

    async def holds(self, tenant: str, id: str) -> bool:
        """Whether a tenant has a record of a public id.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if self.ledger is None:
            return False
        found = await asyncio.to_thread(self.ledger.ledger.find, id)
        return any(record.tenant == tenant for record in found)

    async def keep_baseline(self, route: Route) -> None:
        """Stores what an upstream is now, to be compared with after a restart too.

        Raises:
            LedgerError: it cannot be stored.
        """
        if self.ledger is None or route.public_url is None:
            return
        from samebits.ledger.baselines import Baseline, keep_baseline

        now = Baseline(route.name, route.public_url, route.upstream_model, route.seen.model, route.seen.fingerprint)
        await asyncio.to_thread(keep_baseline, self.ledger.ledger, now)

    def restore_baseline(self, route: Route) -> None:
        """Makes a route compare with what its upstream was before the start, if that is stored.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if self.ledger is None or route.public_url is None:
            return
        from samebits.ledger.baselines import read_baseline

        before = read_baseline(self.ledger.ledger, route.name, route.public_url, route.upstream_model)
        if before is not None:
            route.seen.model, route.seen.fingerprint = before.model, before.fingerprint


def _model(call: Call, route: Route, outcome: Outcome | None) -> ModelRef:
    asked = call.body.get("model")
    name = outcome.whole.get("model") if outcome is not None else route.seen.model
    return ModelRef(
        asked=asked if isinstance(asked, str) else route.name,
        name=name if isinstance(name, str) else route.upstream_model,
        revision=None if route.upstream is None else route.upstream.revision,
        fingerprint=route.known_fingerprint if outcome is None else fingerprint_of(outcome),
        engine=route.engine,
        base_url=route.public_url,
    )


def _digests(block: Mapping[str, Any]) -> Digests:
    return Digests(
        rendered_prompt=block.get("rendered_prompt_sha256"),
        prompt_tokens=block.get("prompt_tokens_sha256"),
        output_tokens=block.get("output_tokens_sha256"),
        logprobs=block.get("logprobs_sha256"),
        form=block.get("form_sha256"),
    )
