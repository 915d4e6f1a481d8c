"""The models that a gateway stands before, and what it has seen of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from samebits.gateway.call import Backend
from samebits.gateway.levels import Level
from samebits.gateway.settings import UpstreamConfig
from samebits.ledger import public_url


@dataclass
class Seen:
    """What the answers of an upstream stated last; None before the first one.

    Attributes:
        verified: whether the server confirmed at the start that it runs in the mode that it is declared to;
            None where it does not tell, or was lost since and may have been started in another way.
    """

    model: str | None = None
    fingerprint: str | None = None
    verified: bool | None = None

    def forget_mode(self) -> None:
        """What the server said of its mode no longer holds."""
        self.verified = None


@dataclass(frozen=True)
class Route:
    """A name and what computes its answers.

    Attributes:
        level: the strongest that it gives; of an upstream as declared.
        fingerprint: of an embedded engine.
        defaults: effective parameters of a request that gives none, where they are known.
        parameters: by path the names of those that it knows; None where it may know any, as upstreams do.
        upstream: of an upstream.
        stronger: the model that answers where a stronger level is asked for.
    """

    name: str
    engine: Literal["embedded", "upstream"]
    backend: Backend
    level: Level
    timeout: float
    fingerprint: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, frozenset[str]] | None = None
    upstream: UpstreamConfig | None = None
    policy: str | None = None
    failover: tuple[str, ...] = ()
    stronger: str | None = None
    seen: Seen = field(default_factory=Seen)

    @property
    def own_fingerprint(self) -> str | None:
        """The fingerprint of an embedded engine, or the one that is configured; of every answer."""
        return self.fingerprint if self.upstream is None else self.upstream.fingerprint

    @property
    def known_fingerprint(self) -> str | None:
        """The fingerprint, as far as it is known before an answer; an upstream's last one may have moved since."""
        return self.own_fingerprint or self.seen.fingerprint

    @property
    def upstream_model(self) -> str:
        """The name under which its backend knows the model."""
        return self.name if self.upstream is None else self.upstream.model or self.name

    @property
    def public_url(self) -> str | None:
        """The address of an upstream."""
        return None if self.upstream is None else public_url(self.upstream.base)

    @property
    def identity(self) -> dict[str, Any]:
        """What computes it, for the key of an answer."""
        if self.upstream is None:
            return {"fingerprint": self.fingerprint}
        return {
            "base_url": self.public_url,
            "model": self.upstream_model,
            "resolved": self.upstream.revision or self.seen.model,
            "fingerprint": self.known_fingerprint,
        }
