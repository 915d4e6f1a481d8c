"""What a gateway is told: the keys of the configuration that are about upstreams, tenants, cache and ledger."""

# ruff: noqa: RUF009  key is dataclasses.field

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from samebits.errors import InputError
from samebits.gateway.levels import Level

Api = Literal["openai", "azure", "vllm", "sglang", "llamacpp", "samebits"]
Privacy = Literal["full", "digest-only", "redacted"]


def key(default: Any, meaning: str, *, low: float | None = None, high: float | None = None) -> Any:
    """A key: ``meaning`` is shown by ``samebits serve --help`` and docs/config.md; bounds are checked."""
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high})


@dataclass(frozen=True)
class UpstreamConfig:
    """A model that another server computes.

    Raises:
        InputError: the address is none, or holds a secret.
    """

    engine: Literal["upstream"] = key("upstream", "What computes it: another server")
    base_url: str = key("", "Address of the server, with or without /v1")
    api: Api = key("openai", "What it is: openai, azure, vllm, sglang, llamacpp or samebits")
    model: str | None = key(None, "Its name there; the same as here")
    api_key_env: str | None = key(None, "Variable with its API key")
    api_version: str | None = key(None, "Azure's api-version, where it needs one")
    level: Level = key("best-effort", "Level that it is declared to give")
    revision: str | None = key(None, "Name of the model that its answers must state")
    fingerprint: str | None = key(None, "Fingerprint that its answers must state, or else are given")
    refuses: tuple[str, ...] = key((), "Parameters that it refuses, beside those known of its model")
    policy: str | None = key(None, "Name of the policy; the server's")
    failover: tuple[str, ...] = key((), "Other models that may answer where it cannot")
    stronger: str | None = key(None, "Model that answers where a level is asked for that this one does not give")
    attempts: int = key(3, "Most times that a request is sent when it fails in passing", low=1, high=10)
    timeout: float | None = key(None, "Seconds for one answer; the server's request_timeout", low=0.001)
    breaker_failures: int = key(5, "Failures in a row after which it is left alone", low=1)
    breaker_seconds: float = key(10.0, "For how long", low=0.001)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host, parts = None, urlsplit("")
        # What the address is stays unsaid: it may hold a secret.
        if parts.scheme not in ("http", "https") or not host:
            raise InputError("is not the address of a server", field="base_url", remedy="Give http://HOST:PORT/v1.")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise InputError(
                "holds a user, password or query", field="base_url", remedy="Keep keys in api_key_env, and api_version."
            )
        if self.api_version is not None and self.api != "azure":
            raise InputError("is for api: azure", field="api_version", remedy="Leave it out.")

    @property
    def base(self) -> str:
        """The address to which ``/chat/completions`` is appended."""
        url = self.base_url.rstrip("/")
        return url if urlsplit(url).path else url + "/v1"

    @property
    def root(self) -> str:
        """The address of what stands beside ``/v1``."""
        return self.base.removesuffix("/v1")


@dataclass(frozen=True)
class CacheConfig:
    """The cache of answers."""

    bytes: int = key(64 << 20, "Most bytes of all answers; 0 keeps none", low=0)
    entries: int = key(10_000, "Most answers", low=1)
    ttl: float = key(3600.0, "Seconds that an answer is kept", low=0.001)


@dataclass(frozen=True)
class TenantConfig:
    """What holds for the requests of one API key."""

    policy: str | None = key(None, "Name of the policy; the model's")
    allow: tuple[str, ...] | None = key(None, "Policies that its requests may name; all")


@dataclass(frozen=True)
class LedgerConfig:
    """Where records of answers go.

    Raises:
        InputError: rules for a ledger, and no ledger; or patterns for another mode than ``redacted``, or none of them.
    """

    url: str | None = key(None, "Database: sqlite:///FILE or postgresql://…; none")
    anchors: str | None = key(None, "File to which heads of the chains are noted; none")
    privacy: Privacy = key("full", "What is stored of texts: full, digest-only or redacted")
    patterns: dict[str, str] | None = key(
        None, "Names and regular expressions of what redacted replaces; the standard ones (docs/guide/ledger.md)"
    )
    receipts: bool = key(True, "Name a receipt in each answer")
    receipt_key: str | None = key(None, "File of the private key with which GET /v1/receipts/ID signs; none")

    def __post_init__(self) -> None:
        if self.url is None:
            for name in ("anchors", "patterns", "privacy", "receipt_key"):
                if getattr(self, name) not in (None, "full"):
                    raise InputError("is of a ledger, and there is none", field=name, remedy="Give ledger.url too.")
        if self.patterns is not None and self.privacy != "redacted":
            raise InputError("is for privacy: redacted", field="patterns", remedy="Set that, or leave it out.")
        if self.patterns == {}:
            raise InputError("is empty: nothing would be redacted", field="patterns", remedy="Name one.")
