"""What was computed where that is not what was asked: each field that a policy, a model or an attempt changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samebits.gateway.block import Outcome
from samebits.gateway.json_body import write_json
from samebits.gateway.plan import Plan
from samebits.ledger.routes import GENERATE, plain_name


def changes_of(plan: Plan, outcome: Outcome | None = None) -> dict[str, dict[str, Any]] | None:
    """From the request's body to the one that the answer was computed from; None where they are the same.

    Args:
        outcome: the answer, which may be that of a later attempt.

    Returns:
        By field ``value``, which is missing where the field was left out, and ``origin``: ``policy NAME``,
        ``attempt N``, ``model`` where it refuses the field or calls it something else, or ``gateway``.
    """
    asked, planned = plan.call.body, plan.body
    sent = planned if outcome is None or outcome.sent is None else outcome.sent
    changes: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys([*asked, *sent]):
        if _same(name, asked, sent):
            continue
        later = outcome is not None and not _same(name, planned, sent)
        origin = f"attempt {outcome.attempt}" if outcome is not None and later else _origin(plan, name)
        changes[name] = {"value": sent[name], "origin": origin} if name in sent else {"origin": origin}
    return changes or None


def _same(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if (name in one) != (name in other):
        return False
    before, now = one.get(name), other.get(name)
    return before is now or write_json(before) == write_json(now)  # 1 and 1.0 and true are not the same in a schema


def _origin(plan: Plan, name: str) -> str:
    origins = plan.effective.origins
    if plan.call.path == GENERATE and name == "sampling_params":
        return next(iter(origins.values()), "gateway")
    if name == "determinism" and name in plan.body:  # the level that the policy demands
        return f"policy {plan.chosen.name}"
    if plain_name(name) in origins:
        return origins[plain_name(name)]
    if name in plan.fitted.dropped or name in plan.fitted.renamed or name in plan.fitted.renamed.values():
        return "model"
    return "gateway"
