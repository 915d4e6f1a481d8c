"""A whole audit of a server of a test: plan, journal, client, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    timeout: float = 60.0,
    resend: bool = False,
    limit: float | None = None,
) -> Audited:
    """Carries out the plan.

    Args:
        path: of the journal.
        limit: seconds after which the audit is broken off.
    """

    async def work(journal: Journal) -> list[Measured]:
        async with asyncio.timeout(limit):
            return await carry_out(plan, [spec], journal, timeout=timeout, resend=resend)

    with Journal(path, plan.digest(()), plan.document()) as journal:
        [measured] = asyncio.run(work(journal))
    return Audited(measured, list(read_journal(path)))


def audited(
    server: Stub,
    path: Path,
    *,
    prompts: tuple[Prompt, ...],
    timeout: float = 5.0,
    resend: bool = False,
    limit: float | None = None,
    **values: Any,
) -> Audited:
    """Audits the server with `plan_of` these prompts and values."""
    spec = HttpSpec(name="stub", url=server.url)
    return audited_as_planned(spec, path, plan_of(prompts, **values), timeout=timeout, resend=resend, limit=limit)
