"""Policies: what holds for a request beside what it says itself. Plain data, and pure functions of it."""

# ruff: noqa: RUF009  key is dataclasses.field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from samebits.errors import InputError
from samebits.gateway.levels import Level
from samebits.gateway.settings import TenantConfig, key
from samebits.ledger.routes import names_on, plain_name

CacheRule = Literal["off", "deterministic", "all"]
# Fields that a policy may not touch: they say what is asked, or are rules of their own.
NOT_PARAMETERS: Final = frozenset(
    {"model", "messages", "prompt", "input", "text", "stream", "stream_options", "seed", "determinism"}
)
# What beam search does not go with (docs/guide/beam-search.md), unless it has a value of these.
NOT_OF_SEARCH: Final[Mapping[str, tuple[Any, ...]]] = {
    "temperature": (0,),
    **dict.fromkeys(("top_p", "top_k", "min_p"), ()),
    **dict.fromkeys(("repetition_penalty", "presence_penalty", "frequency_penalty"), ()),
    **dict.fromkeys(("logit_bias", "stop", "stop_token_ids", "response_format", "structured_outputs"), ()),
    **dict.fromkeys(("ignore_eos", "echo", "stream"), (False,)),
    "tool_choice": ("auto", "none"),
}
OF_SEARCH: Final = frozenset({"use_beam_search", "best_of", "length_penalty"})


@dataclass(frozen=True)
class Policy:
    """Rules for a request.

    Raises:
        InputError: rules that contradict each other.
    """

    force: dict[str, Any] | None = key(None, "Fields of the body that are set whatever the request says")
    default: dict[str, Any] | None = key(None, "Fields that are set where the request does not say")
    seed: Literal["keep", "derive"] | int = key(
        "keep", "Seed of requests without one: keep gives none, derive one from the request, a number that one"
    )
    level: Level | None = key(None, "Level of determinism that answers must have; any")
    unmet: Literal["refuse", "announce"] = key(
        "refuse", "What happens to a parameter that the model refuses, and to a level that it does not give"
    )
    cache: CacheRule | None = key(
        None, "Which answers are kept: off, deterministic or all; deterministic for upstreams, off for embedded"
    )
    schema: dict[str, Any] | None = key(None, "JSON Schema that the text must satisfy; the request's own")
    regex: str | None = key(None, "Pattern that the text must match; none")
    check: str | None = key(None, "module:function that returns what is wrong with a text, or nothing; none")
    retries: int = key(0, "Further attempts where a text is not valid", low=0, high=10)
    receipt: bool = key(True, "Name a receipt in the answer, where there is a ledger")
    drift: Literal["ignore", "announce", "refuse"] = key(
        "announce", "What happens when an upstream answers with another model or fingerprint than before"
    )
    failover: Literal["same-fingerprint", "any"] = key(
        "same-fingerprint", "Which of a model's failover may answer: those with its fingerprint, or any"
    )

    def __post_init__(self) -> None:
        for name in ("force", "default"):
            given = tuple(getattr(self, name) or ())
            wrong = sorted(each for each in given if {each, plain_name(each)} & NOT_PARAMETERS)
            if wrong:
                raise InputError(
                    f"sets {', '.join(wrong)}", field=name, remedy="Set parameters; seed and level have keys."
                )
            if len(set(map(plain_name, given))) < len(given):
                raise InputError("sets one parameter under two names", field=name, remedy="Use one: max_tokens.")
        judges = [name for name in ("schema", "regex", "check") if getattr(self, name) is not None]
        if len(judges) > 1:
            raise InputError(f"is given beside {judges[0]}", field=judges[1], remedy="Give one of them.")
        if isinstance(self.seed, int) and not 0 <= self.seed < 2**63:
            raise InputError(f"is {self.seed}", field="seed", remedy="Give a number from 0 to 2**63 - 1.")


PLAIN: Final = Policy()
PLAIN_NAME: Final = "plain"
BUILT_IN: Final[Mapping[str, Policy]] = {
    PLAIN_NAME: PLAIN,
    "creative": Policy(default={"temperature": 0.9, "top_p": 0.95}, cache="off", unmet="announce", receipt=False),
    "balanced": Policy(
        default={"temperature": 0.2}, seed="derive", cache="deterministic", unmet="announce", retries=1, failover="any"
    ),
    "critical": Policy(
        force={"temperature": 0},
        seed="derive",
        level="batch",
        unmet="refuse",
        cache="deterministic",
        retries=3,
        drift="refuse",
    ),
    "research": Policy(seed="derive", level="best-effort", unmet="refuse", cache="off", drift="announce"),
}


def known_policies(own: Mapping[str, Policy]) -> dict[str, Policy]:
    """All policies by name: the built-in ones, over which those of a configuration win."""
    return {**BUILT_IN, **own}


@dataclass(frozen=True)
class Chosen:
    """A policy and its name."""

    name: str
    policy: Policy


def choose(
    known: Mapping[str, Policy],
    *,
    header: str | None,
    tenant: TenantConfig | None,
    model: str | None,
    server: str | None,
) -> Chosen:
    """The policy of a request: that of its header, else of its API key, else of the model, else of the server.

    Raises:
        InputError: the header names one that is not known or not allowed.
    """
    if header is not None:
        if header not in known:
            raise InputError(
                f"{header!r:.80} is no policy", field="x-samebits-policy", remedy=f"Use one of: {', '.join(known)}."
            )
        if tenant is not None and tenant.allow is not None and header not in tenant.allow:
            raise InputError(
                f"{header!r} is not allowed for this API key",
                field="x-samebits-policy",
                remedy=f"Use one of: {', '.join(tenant.allow) or 'none'}.",
            )
        return Chosen(header, known[header])
    name = (None if tenant is None else tenant.policy) or model or server or PLAIN_NAME
    return Chosen(name, known[name])


def check_names(known: Mapping[str, Policy], named: Mapping[str, str | None]) -> None:
    """Refuses a configuration that names a policy that does not exist.

    Args:
        named: key of the configuration to the policy that it names.

    Raises:
        InputError: names the key.
    """
    for field, name in named.items():
        if name is not None and name not in known:
            raise InputError(f"{name!r:.80} is no policy", field=field, remedy=f"Use one of: {', '.join(known)}.")


@dataclass(frozen=True)
class Effective:
    """A body after a policy.

    Attributes:
        body: in the order of the request's keys; what a policy adds comes last.
        origins: of each parameter that the policy set, by its plain name (``ledger.routes``): ``policy NAME``.
        withheld: defaults of the policy that the request does not give either, and that contradict what it asks for.
    """

    body: dict[str, Any]
    origins: Mapping[str, str]
    withheld: tuple[str, ...] = ()


def with_policy(path: str, body: Mapping[str, Any], chosen: Chosen) -> Effective:
    """The parameters of a route with those that a policy forces, and its defaults where the request has none (null is
    none), each under the name that it has on that route. What is forced wins over what the request says; a default that
    does not go with it is left out.
    """
    policy, said = chosen.policy, f"policy {chosen.name}"
    result, origins = dict(body), {}
    withheld: list[str] = []
    searches = _searches(body, policy)
    for name, value in (policy.default or {}).items():
        names = names_on(path, name)
        if all(result.get(other) is None for other in names):
            if _contradicts(name, value, searches):
                withheld.append(name)
                continue
            result[name if name in names else names[0]] = value
            origins[plain_name(name)] = said
    for name, value in (policy.force or {}).items():
        names = names_on(path, name)
        given = [other for other in names if result.get(other) is not None]
        field = given[0] if given else name if name in names else names[0]
        if len(given) > 1 or result.get(field) != value or type(result.get(field)) is not type(value):
            origins[plain_name(name)] = said
        for other in given[1:]:
            del result[other]
        result[field] = value
    return Effective(result, origins, tuple(withheld))


def _searches(body: Mapping[str, Any], policy: Policy) -> bool | None:
    """Whether a request is one for beam search; None where neither it nor the policy says."""
    for given in (policy.force or {}, body):
        if given.get("use_beam_search") is not None:
            return given["use_beam_search"] is True
    if (policy.default or {}).get("use_beam_search") is not True:
        return None
    return not any(_contradicts(name, value, searches=True) for name, value in body.items() if value is not None)


def _contradicts(name: str, value: Any, searches: bool | None) -> bool:
    if searches:
        return name in NOT_OF_SEARCH and value not in NOT_OF_SEARCH[name]
    return searches is False and name in OF_SEARCH and value is not False
