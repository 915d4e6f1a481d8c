"""The models that a gateway stands before, and what it has seen of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from samebits.gateway.call import Backend
from samebits.gateway.levels import Level, weaker
from samebits.gateway.settings import UpstreamConfig
from samebits.ledger import public_url


@dataclass(frozen=True, eq=False)
class Mode:
    """What is known of the mode in which an upstream runs. Two are the same if they are one object: what was known from
    one time on, until something else was.

    Attributes:
        confirmed: whether the server said that it runs in the mode that its level needs; None where it does not tell.
        pending: it is asked as soon as it answers, since it was lost, and may have been started in another way.
    """

    confirmed: bool | None = None
    pending: bool = False


@dataclass
class Seen:
    """What an upstream stated last; None before the first answer.

    Attributes:
        unseen: how often it was found without the mode that it had confirmed, though it was never lost. Nobody knows
            since when, so no answer that was kept before is given again.
    """

    model: str | None = None
    fingerprint: str | None = None
    mode: Mode = field(default_factory=Mode)
    unseen: int = 0


@dataclass(frozen=True)
class Route:
    """A name and what computes its answers.

    Attributes:
        declared: the strongest level that it gives, as far as is not known otherwise.
        fingerprint: of an embedded engine.
        defaults: effective parameters of a request that gives none, where they are known.
        parameters: by path the names of those that it knows; None where it may know any, as upstreams do.
        upstream: of an upstream.
        stronger: the model that answers where a stronger level is asked for.
    """

    name: str
    engine: Literal["embedded", "upstream"]
    backend: Backend
    declared: Level
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
    def level(self) -> Level:
        """The strongest level that it gives."""
        return level_in(self.seen.mode, self.declared)

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
            "level": self.level,
            "unseen": self.seen.unseen,
        }


def level_in(mode: Mode, declared: Level) -> Level:
    """What is left of a declared level: of a server that denies its mode, what any other gives."""
    return weaker(declared, "best-effort") if mode.confirmed is False else declared
