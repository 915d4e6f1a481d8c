"""One audit from beginning to end: targets opened, the plan carried out, everything noted in a journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from samebits.audit.journal import Journal
from samebits.audit.plan import Plan
from samebits.audit.run import Progress, Runner
from samebits.audit.targets import HttpSpec, Target, TargetSpec, open_target


@dataclass(frozen=True)
class Measured:
    """How a target was measured; its observations are in the journal.

    Attributes:
        name: of the target.
        known: what was found when it was opened.
        notes: what it does not offer, and what seemed odd.
        progress: of this process.
    """

    name: str
    known: Mapping[str, Any]
    notes: Mapping[str, str]
    progress: Progress


async def carry_out(
    plan: Plan,
    specs: Sequence[TargetSpec],
    journal: Journal,
    *,
    timeout: float,
    resend: bool,
    advance: Callable[[str, int], None] = lambda name, count: None,
    opened: Callable[[str, Mapping[str, str]], None] = lambda name, notes: None,
) -> list[Measured]:
    """Carries out the plan against each target, one after the other.

    Args:
        journal: open, of this plan and these targets.
        timeout: seconds after which an answer of a server is given up.
        resend: see ``Runner``.
        advance: called with the name of a target and the number of its requests that have got an outcome.
        opened: called with the name of a target and its notes before the first request of the plan leaves.

    Raises:
        InputError: a target cannot be used as it was named.
        MeasurementError: a target cannot be asked, or not any more.
    """
    # All of them before the first is asked: a key that is missing is no surprise after hours.
    targets = [open_target(spec, timeout=timeout) for spec in specs]
    known = dict(journal.past.known)

    async def first_question(spec: TargetSpec, target: Target) -> None:
        known[spec.name] = await target.open(plan.probes(), known.get(spec.name))
        if spec.name not in journal.past.known:
            journal.opened(spec.name, known[spec.name])
        opened(spec.name, target.notes)

    # Servers are asked their first questions before anything is paid for: what one of them refuses may change the plan
    # for all. Models in this process have nothing to refuse, and are not all held in memory at once.
    for spec, target in zip(specs, targets, strict=True):
        if isinstance(spec, HttpSpec):
            async with _closing(target):
                await first_question(spec, target)
    results = []
    for spec, target in zip(specs, targets, strict=True):
        async with _closing(target):
            if spec.name in known:
                known[spec.name] = await target.open(plan.probes(), known[spec.name])
            else:
                await first_question(spec, target)
            runner = Runner(
                plan,
                spec.name,
                target,
                journal,
                resend=resend,
                advance=partial(advance, spec.name),
            )
            await runner.run()
            results.append(Measured(spec.name, known[spec.name], target.notes, runner.progress))
    return results


@asynccontextmanager
async def _closing(target: Target) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await asyncio.shield(target.close())
