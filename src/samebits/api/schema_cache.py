"""Requests and answers of the routes about the cache."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from samebits.api.schema_answers import Answer
from samebits.api.schema_strict import Strict


class ExplainRequest(Strict):
    """The body of POST /cache/explain."""

    request: dict[str, Any] = Field(description="The body whose key is asked for.")
    path: Literal["/v1/chat/completions", "/v1/completions", "/v1/responses"] = Field(
        "/v1/chat/completions", description="The route that it is for."
    )
    policy: str | None = Field(None, description="As the header x-samebits-policy.")


class CacheLimits(Answer):
    """What the cache may hold."""

    entries: int
    bytes: int
    ttl: float


class CacheState(Answer):
    """How full the cache is; ``own_entries`` are those of the caller."""

    entries: int
    own_entries: int
    bytes: int
    limits: CacheLimits
    hits: int
    misses: int
    stored: int
    evicted: int
    expired: int


class CacheCleared(Answer):
    """How many answers were forgotten."""

    cleared: int


class CacheExplained(Answer):
    """What enters a key, or why there is none."""

    policy: str
    key: str | None
    reason: str | None
    form: dict[str, Any] | None
    age: float | None
