"""A whole audit of a server of a test: plan, journal, client, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stub_server import Stub

from samebits.audit.carry_out import Measured, carry_out
from samebits.audit.journal import Journal, read_journal
from samebits.audit.observation import Observation
from samebits.audit.plan import Experiment, Plan
from samebits.audit.prompts import Prompt
from samebits.audit.targets import HttpSpec, TargetSpec
from waiting import PATIENCE_S


@dataclass(frozen=True)
class Audited:
    """What an audit left."""

    measured: Measured
    observations: Sequence[Observation]


def prompts_of(count: int) -> tuple[Prompt, ...]:
    """Prompts p0, p1 …, which ask for their number."""
    return tuple(Prompt(id=f"p{i}", messages=({"role": "user", "content": f"Say {i}"},)) for i in range(count))


def plan_of(prompts: tuple[Prompt, ...], **values: Any) -> Plan:
    """A small plan, where the values do not make it another."""
    return Plan(Experiment(**({"runs": 4, "concurrency": (1,), "max_tokens": 8} | values)), prompts)


def audited_as_planned(
    spec: TargetSpec,
    path: Path,
    plan: Plan,
    *,
    timeout: float = PATIENCE_S,
    resend: bool = False,
    until: Callable[[], bool] | None = None,
) -> Audited:
    """Carries out the plan.

    Args:
        path: of the journal.
        until: the audit is broken off when this holds.
    """

    async def work(journal: Journal) -> list[Measured]:
        audit = asyncio.ensure_future(carry_out(plan, [spec], journal, timeout=timeout, resend=resend))
        while until is not None and not audit.done():
            if until():
                audit.cancel()
            await asyncio.sleep(0.005)
        return await audit

    with Journal(path, plan.digest(()), plan.document()) as journal:
        [measured] = asyncio.run(work(journal))
    return Audited(measured, list(read_journal(path)))


def audited(
    server: Stub,
    path: Path,
    *,
    prompts: tuple[Prompt, ...],
    timeout: float = PATIENCE_S,
    resend: bool = False,
    until: Callable[[], bool] | None = None,
    **values: Any,
) -> Audited:
    """Audits the server with `plan_of` these prompts and values."""
    spec = HttpSpec(name="stub", url=server.url)
    return audited_as_planned(spec, path, plan_of(prompts, **values), timeout=timeout, resend=resend, until=until)
