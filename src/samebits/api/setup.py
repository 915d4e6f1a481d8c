"""From a configuration to the gateway before all models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from samebits.api.config import ModelConfig, ServerConfig
from samebits.api.errors import failure
from samebits.api.promise import strongest_level
from samebits.api.schema_chat import ChatRequest
from samebits.api.schema_completions import CompletionRequest
from samebits.api.schema_native import NativeSampling
from samebits.api.schema_responses import ResponseRequest
from samebits.api.served import Served
from samebits.api.service import Service
from samebits.engine.resolve import describe
from samebits.errors import InputError
from samebits.gateway.cache import Cache
from samebits.gateway.gateway import Gateway, check_routes
from samebits.gateway.policy import check_names, known_policies
from samebits.gateway.record import Recorder
from samebits.gateway.route import Route
from samebits.gateway.settings import LedgerConfig
from samebits.gateway.verify import Verifier, is_verifiable
from samebits.ledger import Privacy, environment_id
from samebits.ledger.routes import CHAT, COMPLETIONS, GENERATE, RESPONSES

if TYPE_CHECKING:
    from samebits.gateway.upstream import Upstream
    from samebits.ledger.keys import Signer

# Of our own engine, by route.
PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    CHAT: frozenset(ChatRequest.model_fields),
    COMPLETIONS: frozenset(CompletionRequest.model_fields),
    RESPONSES: frozenset(ResponseRequest.model_fields),
    GENERATE: frozenset(NativeSampling.model_fields),
}


@dataclass(frozen=True)
class Setup:
    """A gateway, and what it holds open while the server runs."""

    gateway: Gateway
    upstreams: Mapping[str, Upstream]
    verifiers: Mapping[str, Verifier]

    async def verify(self) -> None:
        """Asks the upstreams that are declared to be deterministic whether they are. Before the server runs, in a
        loop of its own.

        Raises:
            InputError: one says that it is not.
        """

        async def one(name: str, verifier: Verifier) -> None:
            await self.upstreams[name].open()
            try:
                await verifier.first()
            finally:
                await self.upstreams[name].close()

        await asyncio.gather(*(one(name, verifier) for name, verifier in self.verifiers.items()))

    async def open(self) -> None:
        """Opens the upstreams, and watches those that are verified."""
        for upstream in self.upstreams.values():
            await upstream.open()
        for verifier in self.verifiers.values():
            verifier.start()

    async def close(self) -> None:
        """Stores what is to be stored, and closes everything."""
        for verifier in self.verifiers.values():
            await verifier.close()
        await self.gateway.close()
        for upstream in self.upstreams.values():
            await upstream.close()
        if self.gateway.recorder.ledger is not None:
            await self.gateway.recorder.ledger.close()


def make_gateway(service: Service) -> Setup:
    """The gateway of a service.

    Raises:
        InputError: names in the configuration lead nowhere, or a key is missing.
        LedgerError: the ledger cannot be opened.
    """
    config = service.config
    known = known_policies(config.policies)
    named = {f"models.{name}.policy": model.policy for name, model in config.models.items()}
    named |= {f"tenants.{name}.policy": tenant.policy for name, tenant in config.tenants.items()}
    named |= {
        f"tenants.{name}.allow": allowed for name, tenant in config.tenants.items() for allowed in tenant.allow or ()
    }
    check_names(known, {"policy": config.policy, **named})
    upstreams = {name: _upstream(name, config) for name in config.upstreams}
    routes = {name: _embedded(served, config, service) for name, served in service.models.items()}
    routes |= {name: _route(name, config, upstream) for name, upstream in upstreams.items()}
    check_routes(routes)
    recorder = _recorder(config)
    for route in routes.values():
        recorder.restore_baseline(route)
    gateway = Gateway(
        routes,
        known,
        config.tenants,
        Cache(config.cache),
        lambda error: failure(error).body["error"],
        policy=config.policy,
        level=config.determinism,
        recorder=recorder,
    )
    verifiers = {name: Verifier(routes[name], up) for name, up in upstreams.items() if is_verifiable(up.config)}
    return Setup(gateway, upstreams, verifiers)


def _upstream(name: str, config: ServerConfig) -> Upstream:
    from samebits.gateway.upstream import Upstream  # its client takes a third of a second to import

    try:
        return Upstream(name, config.upstreams[name])
    except InputError as error:
        raise InputError(error.message, field=f"models.{name}.api_key_env", remedy=error.remedy) from error


def _route(name: str, config: ServerConfig, upstream: Upstream) -> Route:
    keys = upstream.config
    return Route(
        name=name,
        engine="upstream",
        backend=upstream,
        declared=keys.level,
        timeout=keys.timeout or config.request_timeout,
        upstream=keys,
        policy=keys.policy,
        failover=keys.failover,
        stronger=keys.stronger,
    )


def _embedded(served: Served, config: ServerConfig, service: Service) -> Route:
    keys = config.models.get(served.name)
    own = keys if isinstance(keys, ModelConfig) else ModelConfig()
    return Route(
        name=served.name,
        engine="embedded",
        backend=service.inner,
        declared=strongest_level(served.llm.profile),
        timeout=config.request_timeout,
        fingerprint=served.fingerprint,
        defaults=_defaults(served),
        parameters=PARAMETERS,
        policy=own.policy,
        failover=own.failover,
        stronger=own.stronger,
    )


def _defaults(served: Served) -> dict[str, Any]:
    """What a request that gives no parameters runs with; without those whose default depends on the route."""
    effective = served.llm.resolve({})
    values = {name: param["value"] for name, param in describe(effective.params, effective.origins).items()}
    of_routes = ("logprobs", "prompt_logprobs", "max_tokens", "seed", "stop")
    return {name: value for name, value in values.items() if name not in of_routes}


def _recorder(config: ServerConfig) -> Recorder:
    keys: LedgerConfig = config.ledger
    if keys.url is None:
        return Recorder()
    from samebits.ledger import AsyncLedger, Ledger

    signer = None if keys.receipt_key is None else _signer(keys.receipt_key)
    privacy = Privacy(keys.privacy) if keys.patterns is None else Privacy(keys.privacy, keys.patterns)
    ledger = AsyncLedger(Ledger.open(keys.url, privacy=privacy, anchors=keys.anchors))
    return Recorder(ledger, keys.receipts, config.date.isoformat(), environment_id(), signer)


def _signer(path: str) -> Signer:
    from samebits.ledger.keys import read_signer

    try:
        return read_signer(Path(path))
    except InputError as error:
        raise InputError(error.message, field="ledger.receipt_key", remedy=error.remedy) from error
