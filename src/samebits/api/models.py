"""GET /v1/models, /health, /ready and /metrics; and /v1/embeddings, which is refused."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from samebits.api.document import answers
from samebits.api.errors import UnknownModelError, UnsupportedError, json_response
from samebits.api.promise import strongest_level
from samebits.api.schema_answers import ErrorAnswer, ModelAnswer, ModelList, Status
from samebits.api.served import Served
from samebits.api.service import Service, service_of
from samebits.gateway.route import Route

router = APIRouter()


def _described(served: Served) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "samebits",
        "samebits": {
            "fingerprint": served.fingerprint,
            "profile": served.llm.profile,
            "level": strongest_level(served.llm.profile),
            "level_verified": True,
            "context_length": served.llm.config.context_length,
            "vocab_size": served.llm.config.vocab_size,
        },
    }


def _upstream(route: Route, created: int) -> dict[str, Any]:
    return {
        "id": route.name,
        "object": "model",
        "created": created,
        "owned_by": "upstream",
        "samebits": {
            "fingerprint": route.known_fingerprint,
            "profile": None,
            "level": route.level,
            "level_verified": route.seen.mode.confirmed,
            "context_length": None,
            "vocab_size": None,
        },
    }


def _listed(service: Service) -> dict[str, dict[str, Any]]:
    found = {name: _described(served) for name, served in service.models.items()}
    routes = {} if service.gateway is None else service.gateway.routes
    others = {name: route for name, route in routes.items() if route.engine == "upstream"}
    return found | {name: _upstream(route, service.started) for name, route in others.items()}


@router.get("/v1/models", responses=answers(ModelList))
async def list_models(request: Request) -> Response:
    """The models that are served."""
    return json_response({"object": "list", "data": list(_listed(service_of(request)).values())})


@router.get("/v1/models/{name:path}", responses=answers(ModelAnswer))
async def get_model(request: Request, name: str) -> Response:
    """One model."""
    listed = _listed(service_of(request))
    if name not in listed:
        raise UnknownModelError(
            f"{name!r:.100} is not served", field="model", remedy=f"Use one of: {', '.join(listed)}."
        )
    return json_response(listed[name])


@router.get("/health", responses=answers(Status, others={503: Status}))
async def health(request: Request) -> Response:
    """200 while every engine runs; 503, with the reasons, when one has failed."""
    return _status(_engine_faults(service_of(request)))


@router.get("/ready", responses=answers(Status, others={503: Status}))
async def ready(request: Request) -> Response:
    """200 while requests are taken; 503 while the server ends, after an engine has failed, or while answers cannot be
    recorded.
    """
    service = service_of(request)
    if service.draining:
        return json_response({"status": "draining", "faults": {}}, 503)
    ledger = None if service.gateway is None else service.gateway.recorder.ledger
    unwritten = None if ledger is None else await ledger.pulse.fault()
    return _status(({} if unwritten is None else {"ledger": unwritten}) | _engine_faults(service))


def _engine_faults(service: Service) -> dict[str, str]:
    return {s.name: str(s.driver.fault) for s in service.models.values() if s.driver.fault is not None}


def _status(faults: dict[str, str]) -> Response:
    return json_response({"status": "failed" if faults else "ok", "faults": faults}, 503 if faults else 200)


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
async def metrics(request: Request) -> Response:
    """Counts and times, in Prometheus' format."""
    content, content_type = service_of(request).metrics.exposed(request.headers.get("accept", ""))
    return Response(content, media_type=None, headers={"content-type": content_type})


@router.post("/v1/embeddings", responses={400: {"model": ErrorAnswer, "description": "Always"}})
async def refuse_embeddings() -> Response:
    """Refused: the models that are served continue texts, and none was trained to embed them."""
    raise UnsupportedError(
        "is not supported: no model here makes embeddings", field="embeddings", remedy="Use a server that has one."
    )
