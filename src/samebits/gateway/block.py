"""The block ``samebits`` of an answer: what is promised, by whom, and what was done to the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from samebits.gateway.check import BLOCK_DIGESTS
from samebits.gateway.levels import Level, includes, weaker
from samebits.gateway.plan import Plan, seed_of
from samebits.gateway.route import Mode, Route, level_in
from samebits.ledger.routes import plain_name

# Fields of a body that are not parameters: what is asked, and how the answer is sent.
_ASKED: Final = frozenset({"model", "messages", "prompt", "input", "instructions", "stream", "stream_options"})
_LONG: Final = frozenset({"tools", "functions", "response_format", "structured_outputs", "text", "metadata", "user"})


@dataclass(frozen=True)
class Outcome:
    """What a route answered.

    Attributes:
        whole: the answer as it came: an object; of /generate also a list of them.
        route: which one, since another may have stepped in.
        attempt: number of the attempt that was valid, from 1.
        valid: what the check said; None where nothing was checked.
        drift: how the upstream differs from before; None where it does not.
        sent: the body of the attempt, where that is not the one of the plan.
        mode: what was known of an upstream's mode all the while that it computed the answer.
    """

    whole: Any
    route: Route
    attempt: int = 1
    valid: bool | None = None
    drift: str | None = None
    sent: Mapping[str, Any] | None = None
    mode: Mode = field(default_factory=Mode)


def params_of(plan: Plan, sent: Mapping[str, Any], attempt: int = 1) -> dict[str, dict[str, Any]]:
    """The parameters of the body of an attempt, each with its origin."""

    def origin(name: str) -> str:
        if sent[name] != plan.body.get(name):
            return f"attempt {attempt}"
        return plan.effective.origins.get(plain_name(name), "request")

    return {
        name: {"value": value, "origin": origin(name)}
        for name, value in sent.items()
        if name not in _ASKED and name not in _LONG and value is not None
    }


def block_of(plan: Plan, outcome: Outcome, cache: str, receipt_id: str | None) -> dict[str, Any]:
    """The block of an answer."""
    config = outcome.route.upstream
    sent = plan.body if outcome.sent is None else outcome.sent
    seed = seed_of(plan.call.path, sent)
    # Only samebits has such a block. What another server puts there proves nothing, and would be recorded as if it did.
    own = outcome.whole.get("samebits") if config is None or config.api == "samebits" else None
    warnings = list(own.get("warnings", ())) if isinstance(own, dict) else []
    announced = _announcements(plan, outcome)
    # Of our own engine, and not of an upstream that stepped in: that gives what is declared for it.
    if plan.route.engine == outcome.route.engine == "embedded" and isinstance(own, dict):
        block = {**own, "params": _with_origins(plan, own.get("params", {})), "receipt_id": receipt_id}
    else:
        block = {
            "level": level_of(plan, outcome),
            "fingerprint": fingerprint_of(outcome),
            "receipt_id": receipt_id,
            # One may have been drawn there.
            "seed": own.get("seed") if seed is None and isinstance(own, dict) else seed,
            "params": params_of(plan, sent, outcome.attempt),
            **{name: own.get(name) if isinstance(own, dict) else None for name in BLOCK_DIGESTS},
            "cached_prompt_tokens": _cached_tokens(outcome.whole),
        }
    return {**block, "warnings": [*warnings, *announced], "gateway": _gateway(plan, outcome, cache)}


def level_of(plan: Plan, outcome: Outcome) -> Level:
    """The level of an answer: that of its plan, or what its route gave where that is less."""
    return weaker(plan.level, level_in(outcome.mode, outcome.route.declared))


def fingerprint_of(outcome: Outcome) -> str | None:
    """The fingerprint that an answer states, or that its upstream is declared to have."""
    stated = outcome.whole.get("system_fingerprint")
    if isinstance(stated, str) and stated:
        return stated
    config = outcome.route.upstream
    return outcome.route.fingerprint if config is None else config.fingerprint


def _gateway(plan: Plan, outcome: Outcome, cache: str) -> dict[str, Any]:
    model, upstream_id = outcome.whole.get("model"), outcome.whole.get("id")
    is_upstream = outcome.route.engine == "upstream"
    return {
        "route": outcome.route.name,
        "engine": outcome.route.engine,
        "model": model if isinstance(model, str) else None,
        "policy": plan.chosen.name,
        "cache": cache,
        "level_asked": plan.level_asked,
        "level_verified": outcome.mode.confirmed if is_upstream else True,
        "attempt": outcome.attempt,
        "valid": outcome.valid,
        "dropped": list(plan.fitted.dropped),
        "renamed": dict(plan.fitted.renamed),
        "upstream_id": upstream_id if is_upstream and isinstance(upstream_id, str) else None,
    }


def _announcements(plan: Plan, outcome: Outcome) -> list[str]:
    said = [f"{name} was left out: the model refuses it" for name in plan.fitted.dropped]
    said += [
        f"the default of the policy {plan.chosen.name} for {name} was left out: it does not go with the request"
        for name in plan.effective.withheld
    ]
    asked, level = plan.level_asked, level_of(plan, outcome)
    if not includes(level, asked):
        said.append(f"the level {asked} was asked for; {outcome.route.name} gives {level}")
    if outcome.route.name != plan.route.name:
        said.append(f"{outcome.route.name} answered in place of {plan.route.name}")
    if outcome.drift is not None:
        said.append(outcome.drift)
    if outcome.valid is False:
        said.append("the text is not of the form that was asked for")
    return said


def _with_origins(plan: Plan, params: Mapping[str, Any]) -> dict[str, Any]:
    origins = plan.effective.origins
    return {
        name: {**param, "origin": origins[name]} if name in origins and isinstance(param, dict) else param
        for name, param in params.items()
    }


def _cached_tokens(whole: Mapping[str, Any]) -> int:
    usage = whole.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) else 0
