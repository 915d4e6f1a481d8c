"""The application: routes, errors and middleware, put together."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI

import samebits
from samebits.api import chat, completions, errors, models, native, responses, tokenize
from samebits.api.auth import ApiKeys
from samebits.api.config import ModelConfig, ServerConfig
from samebits.api.metrics import Metrics
from samebits.api.middleware import Gate
from samebits.api.served import Served
from samebits.api.service import Service
from samebits.engine.driver import Driver
from samebits.llm import LLM

NO_KEYS = ApiKeys()


def load_models(config: ServerConfig) -> dict[str, LLM]:
    """Loads what is to be served.

    Raises:
        InputError: a model cannot be used.
    """
    return {name: _load(model) for name, model in config.models.items()}


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
    """The app over models that are loaded; their engines run from its start-up to its shutdown."""
    created = int(time.time())
    served = {
        name: Served(name, llm, Driver(llm.engine, config.max_choices), llm.fingerprint, created)
        for name, llm in llms.items()
    }
    metrics = Metrics(served)
    service = Service(config, served, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for model in served.values():
            model.driver.start()
        yield
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
    errors.install(app)
    app.add_middleware(Gate, service=service, keys=keys, metrics=metrics)
    for module in (chat, completions, models, native, responses, tokenize):
        app.include_router(module.router)
    return app
