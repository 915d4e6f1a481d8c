"""GET and DELETE /cache, and POST /cache/explain: what the cache holds, and what enters a key."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from samebits.api.auth import tenant_of
from samebits.api.document import answers
from samebits.api.errors import UnknownModelError, json_response
from samebits.api.schema_cache import CacheCleared, CacheExplained, CacheState, ExplainRequest
from samebits.api.service import Service, service_of
from samebits.api.strict_route import StrictRoute
from samebits.gateway.call import Call
from samebits.gateway.gateway import Gateway, find_route

router = APIRouter(route_class=StrictRoute)


def _gateway(service: Service) -> Gateway:
    assert service.gateway is not None, "the application is put together"
    return service.gateway


@router.get("/cache", responses=answers(CacheState))
async def cache_state(request: Request) -> Response:
    """How full the cache is, and what it did since the start."""
    cache = _gateway(service_of(request)).cache
    return json_response(
        {
            "entries": len(cache),
            "own_entries": cache.count(tenant_of(request)),
            "bytes": cache.bytes,
            "limits": {"entries": cache.config.entries, "bytes": cache.config.bytes, "ttl": cache.config.ttl},
            **vars(cache.counts),
        }
    )


@router.delete("/cache", responses=answers(CacheCleared))
async def clear_cache(request: Request) -> Response:
    """Forgets all answers that belong to the caller."""
    return json_response({"cleared": _gateway(service_of(request)).cache.clear(tenant_of(request))})


@router.post("/cache/explain", responses=answers(CacheExplained))
async def explain(request: Request, body: ExplainRequest) -> Response:
    """What enters the key of a request, and whether its answer is there. Nothing is computed."""
    service = service_of(request)
    gateway = _gateway(service)
    model = body.request.get("model")
    if find_route(gateway.routes, model) is None:
        raise UnknownModelError(
            f"{model!r:.100} is not served", field="request.model", remedy=f"Use one of: {', '.join(gateway.routes)}."
        )
    plan = gateway.plan(Call(body.path, body.request, tenant_of(request), body.policy))
    if plan.parts is None:
        explained: dict[str, Any] = {"key": None, "reason": plan.why_not, "form": None, "age": None}
    else:
        key = plan.parts.digest
        explained = {"key": key, "reason": None, "form": plan.parts.form, "age": gateway.cache.peek(key)}
    return json_response({"policy": plan.chosen.name, **explained})
