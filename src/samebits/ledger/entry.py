"""What is told to the ledger: one entry for each answer, attempt, error, cancellation or change of an alias."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from samebits.errors import InputError, shown

Json = None | bool | int | float | str | list[Any] | dict[str, Any]
Kind = Literal["answer", "attempt", "error", "cancelled", "alias"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
EngineKind = Literal["embedded", "upstream"]
MOST_TENANT: Final = 200  # characters
PUBLIC_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}")
DIGEST: Final = re.compile(r"[a-z0-9]+:[0-9a-f]{32,128}")


@dataclass(frozen=True, kw_only=True)
class ModelRef:
    """Which model was asked for, and which answered.

    Attributes:
        asked: the name in the request.
        name: what it resolved to; an upstream's own statement where it made one. None when nothing was resolved.
        revision: a commit, date or version of the resolved model, where one is known.
        fingerprint: ``system_fingerprint`` of the answer.
        engine: what computed it.
        base_url: of an upstream, without credentials and query.
    """

    asked: str
    name: str | None = None
    revision: str | None = None
    fingerprint: str | None = None
    engine: EngineKind | None = None
    base_url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Digests:
    """Digests of what an answer was computed from and to, each ``sha256:…``; None where it is not known.

    Attributes:
        rendered_prompt, prompt_tokens, output_tokens, logprobs, form: those of the block ``samebits``
            (docs/guide/server.md).
    """

    rendered_prompt: str | None = None
    prompt_tokens: str | None = None
    output_tokens: str | None = None
    logprobs: str | None = None
    form: str | None = None


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds, by a monotonic clock: from the request's arrival to the first token and to the end."""

    first_token: float | None = None
    total: float | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that happened. The ledger adds sequence number, wall-clock time, digests of request and answer.

    Attributes:
        id: public id; for an answer the ``id`` that the client gets.
        tenant: whose chain it belongs to.
        parent: for an attempt, the id of the answer that it is an attempt at.
        attempt: its number, from 1.
        index: of an answer that is one of several to one request, such as those of /generate, which one, from 0.
        route: path of the request, such as ``/v1/chat/completions``.
        level_asked: level of determinism that the request asks for.
        level_declared: the one that the answer states.
        request: the body as it was received. Header fields never belong into it.
        changes: of the body that was computed instead each field that differs: ``origin``, and ``value`` unless it was
            left out.
        params: effective parameters, each ``{"value": …, "origin": …}`` (``samebits.engine.describe``).
        seed: the one that was used, also when it was drawn.
        answer: what was sent, as one JSON value also where it was streamed.
        error: what was sent instead: the object of the error body.
        cache: such as ``miss``, ``hit`` or ``bypass``.
        policy: name of the policy under which it was answered.
        date: today's date for chat templates, ISO 8601.
        environment: ``samebits.ledger.environment_id()`` of the process.

    Raises:
        InputError: a value that can never be recorded.
    """

    id: str
    tenant: str
    kind: Kind
    route: str
    model: ModelRef
    parent: str | None = None
    attempt: int | None = None
    index: int | None = None
    level_asked: str | None = None
    level_declared: str | None = None
    request: Json = None
    changes: Mapping[str, Mapping[str, Any]] | None = None
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seed: int | None = None
    digests: Digests = field(default_factory=Digests)
    answer: Json = None
    error: Json = None
    cache: str | None = None
    policy: str | None = None
    timing: Timing = field(default_factory=Timing)
    date: str | None = None
    environment: str | None = None

    def __post_init__(self) -> None:
        check_id("id", self.id)
        if self.parent is not None:
            check_id("parent", self.parent)
        check_tenant(self.tenant)
        if self.kind not in KINDS:
            raise InputError(f"{shown(self.kind)} is unknown", field="kind", remedy=f"Give one of: {', '.join(KINDS)}.")
        if self.attempt is not None and self.attempt < 1:
            raise InputError(f"{self.attempt} is no number of an attempt", field="attempt", remedy="Count from 1.")
        _check_url(self.model.base_url)
        for name, digest in vars(self.digests).items():
            if digest is not None and not DIGEST.fullmatch(digest):
                raise InputError(
                    f"{shown(digest)} is no digest", field=f"digests.{name}", remedy="Give such as sha256:00ff…"
                )


def check_id(name: str, value: str) -> None:
    """Raises InputError for what cannot be a public id."""
    if not isinstance(value, str) or not PUBLIC_ID.fullmatch(value):
        raise InputError(
            f"{shown(value)} is no id", field=name, remedy="Use 1 to 200 of ASCII letters, digits and . _ : -"
        )


def check_tenant(value: str) -> None:
    """Raises InputError for what cannot name a tenant."""
    good = isinstance(value, str) and 0 < len(value) <= MOST_TENANT and value.isprintable()
    if not good:
        raise InputError(
            f"{shown(value)} is no tenant", field="tenant", remedy=f"Use 1 to {MOST_TENANT} printable characters."
        )


def _check_url(url: str | None) -> None:
    """The value itself is not shown: it may hold a secret."""
    if url is None:
        return
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InputError(
            "holds credentials or a query",
            field="model.base_url",
            remedy="Strip them: samebits.ledger.public_url(url).",
        )


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()


class Record(NamedTuple):
    """An entry as it is stored. A tuple, since a chain is checked at the rate at which these are made.

    Attributes:
        seq: position in its tenant's chain, from 1.
        time_ns: wall clock, nanoseconds since 1970. It may go back; order is that of ``seq``.
        prev: hash of the record before; of the first, that of nothing (``GENESIS``).
        hash: ``sha256:…`` of the canonical header, which holds the digest of ``body``.
        body: canonical JSON (RFC 8785) of what the privacy mode lets through; None once it was pruned.
        body_digest: ``sha256:…`` of the body that was stored at first.
    """

    tenant: str
    seq: int
    id: str
    kind: str
    time_ns: int
    prev: str
    hash: str
    body: bytes | None
    body_digest: str
