"""The application: routes, errors and middleware, put together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI

import samebits
from samebits.api import cache_routes, chat, completions, errors, models, native, receipts, responses, tokenize
from samebits.api.auth import ApiKeys
from samebits.api.config import ModelConfig, ServerConfig
from samebits.api.front import Front
from samebits.api.metrics import GatewayMetrics, Metrics
from samebits.api.middleware import Gate
from samebits.api.served import Served
from samebits.api.service import Service
from samebits.api.setup import make_gateway
from samebits.engine.driver import Driver
from samebits.llm import LLM

NO_KEYS = ApiKeys()


def load_models(config: ServerConfig) -> dict[str, LLM]:
    """Loads what is to be served.

    Raises:
        InputError: a model cannot be used.
    """
    return {name: _load(model) for name, model in config.embedded.items()}


def _load(model: ModelConfig) -> LLM:
    return LLM(
        model.path,
        model.profile,
        threads=model.threads,
        isa=model.isa,
        max_batch=model.max_batch,
        chunk=model.chunk,
        page_size=model.page_size,
        kv_memory=model.kv_memory,
        prefix_cache=model.prefix_cache,
    )


def make_app(config: ServerConfig, llms: Mapping[str, LLM], keys: ApiKeys = NO_KEYS) -> FastAPI:
    """The app over models that are loaded; their engines run from its start-up to its shutdown. To be called outside of
    event loops, since upstreams are asked what they are.

    Raises:
        InputError: names in the configuration lead nowhere, or an upstream is not what it is declared to be.
    """
    created = int(time.time())
    served = {
        name: Served(name, llm, Driver(llm.engine, config.max_choices), llm.fingerprint, created)
        for name, llm in llms.items()
    }
    metrics = Metrics(served)
    service = Service(config, served, metrics, started=created)
    setup = make_gateway(service)
    service.gateway = setup.gateway
    metrics.registry.register(GatewayMetrics(setup.gateway, setup.upstreams))
    if setup.verifiers:
        asyncio.run(setup.verify())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for model in served.values():
            model.driver.start()
        await setup.open()
        yield
        await setup.close()
        for model in served.values():
            await model.driver.close()

    app = FastAPI(
        title="samebits",
        version=samebits.__version__,
        summary="OpenAI's API, with the same bits for the same request",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # to an address made of the header Host, which anybody can write
    )
    app.state.service = service
    service.inner.app = app
    errors.install(app)
    app.add_middleware(Front, service=service)
    app.add_middleware(Gate, service=service, keys=keys, metrics=metrics)
    for module in (cache_routes, chat, completions, models, native, receipts, responses, tokenize):
        app.include_router(module.router)
    return app
