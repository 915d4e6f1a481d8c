"""From a request to what is sent, to whom, and under which rules. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from samebits.errors import InputError, SamebitsError
from samebits.gateway.call import Call
from samebits.gateway.capability import Fitted, fit, refused_by
from samebits.gateway.check import Check, request_check
from samebits.gateway.errors import RefusedError
from samebits.gateway.ids import upstream_id
from samebits.gateway.key import KeyParts, effective_body, is_deterministic, outside
from samebits.gateway.levels import LEVELS, Level, includes, stronger
from samebits.gateway.policy import CacheRule, Chosen, Effective, with_policy
from samebits.gateway.route import Route
from samebits.ledger.canonical import canonical, digest
from samebits.ledger.routes import GENERATE, OTHER_FORM, RESPONSES, names_on, plain_name

SEED_BITS: Final = 31  # what every server takes


@dataclass(frozen=True)
class Plan:
    """How a request is answered by one route.

    Attributes:
        body: what is sent, but for the name of the model and the way of streaming.
        level_asked: by the request or the policy.
        level: what the answer is said to have.
        check: how its text is judged.
        live: whether pieces may be passed on before the text was judged.
        parts: what its key is made of; None where the cache has no part in it.
        why_not: why it has none; None where it has.
    """

    call: Call
    route: Route
    chosen: Chosen
    effective: Effective
    fitted: Fitted
    level_asked: Level | None
    level: Level
    check: Check | None
    parts: KeyParts | None
    why_not: str | None

    @property
    def body(self) -> dict[str, Any]:
        return self.fitted.body

    @property
    def live(self) -> bool:
        return self.call.path != GENERATE and not self.validates

    @property
    def validates(self) -> bool:
        """Whether a text that is not valid is refused."""
        return self.check is not None and (self.check.binding or self.chosen.policy.retries > 0)

    def refuses(self, level: Level) -> bool:
        """Whether an answer of a level may not be given: the request itself asks for more, or the policy insists."""
        insists = self.chosen.policy.unmet == "refuse"
        return not includes(level, self.level_asked if insists else self.call.body.get("determinism"))

    @property
    def wants_usage(self) -> bool:
        """Whether the client asked for the usage at the end of a stream."""
        options = self.call.body.get("stream_options")
        return isinstance(options, dict) and bool(options.get("include_usage"))


def seed_of(path: str, body: Mapping[str, Any]) -> int | None:
    """The seed of a body; None where it has none."""
    given = body.get("sampling_params") if path == GENERATE else body
    seed = given.get(names_on(path, "seed")[0]) if isinstance(given, Mapping) else None
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


def derived_seed(*parts: object) -> int:
    """A seed that depends on its parts alone: the same request gets the same one, everywhere and at any time."""
    return int(digest(canonical(list(parts))).removeprefix("sha256:")[:8], 16) >> (32 - SEED_BITS)


def make_plan(call: Call, route: Route, chosen: Chosen, check: Check | None, default_level: Level | None) -> Plan:
    """The plan of a call.

    Args:
        check: the policy's.
        default_level: the server's.

    Raises:
        InputError: what is asked for cannot be given, or the body is wrong.
    """
    policy = chosen.policy
    if call.path == GENERATE:
        effective = _native(call, chosen)
    else:
        effective = _seeded(call, with_policy(call.path, call.body, chosen), chosen)
    _known(call, route, chosen, effective)
    judged = True
    if check is None and route.engine == "upstream":  # the engine of this process judges by itself
        try:
            check = request_check(call.path, effective.body)
        except InputError:
            if policy.retries:
                raise
            judged = False  # the upstream may know what to do with it
    if check is not None and check.binding:
        _judgeable(call, chosen)
    asked, body = _levels(effective.body, chosen, default_level if route.engine == "upstream" else None, route)
    if route.upstream is not None and isinstance(previous := body.get("previous_response_id"), str):
        body = {**body, "previous_response_id": upstream_id(previous)}
    refused = frozenset[str]()
    if route.upstream is not None:
        refused = refused_by(route.upstream_model, route.upstream.refuses)
    fitted = fit(body, refused, policy.unmet)
    level = route.level
    if level == "best-effort" and {"seed", "temperature"} & set(fitted.dropped):
        level = "none"
    if not includes(level, asked) and policy.unmet == "refuse":
        raise unmet(asked, level, route)
    parts, why_not = _key(call, route, chosen, fitted.body, check) if judged else (None, "schema")
    return Plan(call, route, chosen, effective, fitted, asked, level, check, parts, why_not)


def _known(call: Call, route: Route, chosen: Chosen, effective: Effective) -> None:
    """Refuses what a policy sets and the route does not have: the client would get an error about a field that it did
    not send.

    Raises:
        InputError: names the field.
    """
    known = None if route.parameters is None else route.parameters[call.path]
    for plain in effective.origins:
        name = names_on(call.path, plain)[0]
        other = OTHER_FORM.get(call.path, {}).get(name)
        if other is None and (known is None or name in known):
            continue
        has = f"calls it {other}, in another form" if other else "has no such parameter"
        raise InputError(
            f"is set by the policy {chosen.name}, and {call.path} {has}",
            field=name,
            remedy="Ask on another route, or name another policy by x-samebits-policy.",
        )


def blamed(plan: Plan, error: SamebitsError) -> SamebitsError:
    """An error about a field that the policy set, and not the client, says so."""
    if not isinstance(error, RefusedError) or error.status != 400:
        return error
    said = error.body["error"]
    origin = plan.effective.origins.get(plain_name(str(said.get("param")).rpartition(".")[2]))
    if origin is None:
        return error
    return RefusedError(400, {"error": {**said, "message": f"{said['message']} (set by the {origin})"}}, error.headers)


def _judgeable(call: Call, chosen: Chosen) -> None:
    """Refuses what the check of a policy cannot judge: nothing unjudged is handed out in its name.

    Raises:
        InputError: names the field.
    """
    policy = f"policy {chosen.name} judges the text"
    if call.path == GENERATE:
        raise InputError(f"the {policy}", field="x-samebits-policy", remedy="Ask on another route than /generate.")
    if call.path == RESPONSES and call.streams:
        raise InputError(
            f"the {policy} before it is sent", field="stream", remedy="Ask without it, or on /v1/chat/completions."
        )


def _seeded(call: Call, effective: Effective, chosen: Chosen) -> Effective:
    rule, name = chosen.policy.seed, names_on(call.path, "seed")[0]
    if rule == "keep" or effective.body.get(name) is not None:
        return effective
    if rule == "derive":
        fields = effective_body(call.path, effective.body, {}, aliases=True)
        parts = KeyParts("", call.path, str(call.body.get("model")), {}, fields, None)
        seed = derived_seed("seed", parts.digest)
    else:
        seed = rule
    origins = {**effective.origins, "seed": f"policy {chosen.name}"}
    return replace(effective, body={**effective.body, name: seed}, origins=origins)


def _native(call: Call, chosen: Chosen) -> Effective:
    """A policy for /generate, which has parameters in an object of their own.

    Raises:
        InputError: ``sampling_params`` is no object.
    """
    given = call.body.get("sampling_params")
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise InputError("is no object", field="sampling_params", remedy="Give an object.")
    changed = with_policy(GENERATE, given, chosen)
    # What is asked counts for a derived seed; how the answer comes, and under which id, does not.
    asked = {name: value for name, value in call.body.items() if name not in ("sampling_params", "stream", "rid")}
    seeded = _seeded(call, replace(changed, body={**asked, **changed.body}), chosen)
    if not seeded.origins:
        return Effective(dict(call.body), {}, changed.withheld)
    [seed] = names_on(GENERATE, "seed")
    params = {**changed.body, seed: seeded.body.get(seed)}
    return replace(seeded, body={**call.body, "sampling_params": params})


def _levels(
    body: Mapping[str, Any], chosen: Chosen, default: Level | None, route: Route
) -> tuple[Level | None, dict[str, Any]]:
    """The level asked for, and the body with it in the form that the route understands."""
    own = body.get("determinism")
    if own is not None and own not in LEVELS:
        raise InputError(f"{own!r:.80} is no level", field="determinism", remedy=f"Use one of: {', '.join(LEVELS)}.")
    asked = stronger(own or default, chosen.policy.level)
    if own is not None and not includes(route.level, own):
        raise unmet(own, route.level, route)
    rest = {name: value for name, value in body.items() if name != "determinism"}
    understands = route.upstream is None or route.upstream.api == "samebits"
    if understands and asked is not None and includes(route.level, asked):
        rest["determinism"] = asked
    return asked, rest


def unmet(asked: Level | None, level: Level, route: Route) -> InputError:
    """The refusal of a level."""
    return InputError(
        f"{asked!r} cannot be promised: {route.name!r} gives {level!r}",
        field="determinism",
        remedy=f"Ask for {level!r} at most, or for another model.",
    )


def cache_rule(chosen: Chosen, route: Route) -> CacheRule:
    """Which answers are kept. An embedded answer can be computed again with the same bits; an upstream's cannot."""
    return chosen.policy.cache or ("deterministic" if route.engine == "upstream" else "off")


def _key(
    call: Call, route: Route, chosen: Chosen, body: Mapping[str, Any], check: Check | None
) -> tuple[KeyParts | None, str | None]:
    rule = cache_rule(chosen, route)
    fields = effective_body(call.path, body, route.defaults, aliases=route.engine == "embedded")
    if rule == "off":
        return None, "off"
    if call.path == GENERATE:
        return None, "route"
    if call.cache == "bypass":
        return None, "asked"
    if (name := outside(fields)) is not None:
        return None, name
    if rule == "deterministic" and not is_deterministic(fields):
        return None, "unseeded"
    judged = None
    if check is not None:
        judged = f"{check.name}; {'binding' if check.binding else 'own'}; {chosen.policy.retries}"
    return KeyParts(call.tenant, call.path, route.name, route.identity, fields, judged), None
