"""GET /v1/models, /health, /ready and /metrics; and /v1/embeddings, which is refused."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from samebits.api.document import answers
from samebits.api.errors import UnsupportedError, json_response
from samebits.api.promise import strongest_level
from samebits.api.schema_answers import ErrorAnswer, ModelAnswer, ModelList, Status
from samebits.api.served import Served
from samebits.api.service import service_of

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
            "context_length": served.llm.config.context_length,
            "vocab_size": served.llm.config.vocab_size,
        },
    }


@router.get("/v1/models", responses=answers(ModelList))
async def list_models(request: Request) -> Response:
    """The models that are served."""
    models = service_of(request).models.values()
    return json_response({"object": "list", "data": [_described(served) for served in models]})


@router.get("/v1/models/{name:path}", responses=answers(ModelAnswer))
async def get_model(request: Request, name: str) -> Response:
    """One model."""
    return json_response(_described(service_of(request).model(name)))


@router.get("/health", responses=answers(Status, others={503: Status}))
async def health(request: Request) -> Response:
    """200 while every engine runs; 503, with the reasons, when one has failed."""
    faults = {s.name: str(s.driver.fault) for s in service_of(request).models.values() if s.driver.fault is not None}
    return json_response({"status": "failed" if faults else "ok", "faults": faults}, 503 if faults else 200)


@router.get("/ready", responses=answers(Status, others={503: Status}))
async def ready(request: Request) -> Response:
    """200 while requests are taken; 503 while the server ends, or after an engine has failed."""
    service = service_of(request)
    if service.draining:
        return json_response({"status": "draining", "faults": {}}, 503)
    return await health(request)


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
