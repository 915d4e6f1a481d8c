"""API keys: where they come from, and how one is checked."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request

from samebits.api.config import ServerConfig
from samebits.errors import InputError

DEFAULT_TENANT: Final = "default"


def tenant_of(request: Request) -> str:
    """Whose request it is."""
    tenant: str = getattr(request.state, "tenant", DEFAULT_TENANT)
    return tenant


@dataclass(frozen=True)
class ApiKeys:
    """Digests of the keys that are accepted, and whose they are. None at all: no key is asked for."""

    digests: tuple[bytes, ...] = ()
    tenants: tuple[str, ...] = ()

    @classmethod
    def of(cls, lines: Iterable[str]) -> ApiKeys:
        """Accepts these keys. A line is a key, or the name of a tenant and a key; a key without a name belongs to a
        tenant that is called by its place among the keys, such as ``key-1``.

        Raises:
            InputError: a line has more than two words, or the key of another tenant.
        """
        digests, tenants = list[bytes](), list[str]()
        for number, line in enumerate(lines, 1):
            *names, key = line.split()
            if len(names) > 1:
                raise InputError(
                    f"key {number} has {len(names) + 1} words",
                    field="api_keys_file",
                    remedy="Give KEY, or NAME KEY.",
                )
            tenant, digest = names[0] if names else f"key-{number}", _digest(key.encode())
            owner = tenants[digests.index(digest)] if digest in digests else tenant
            if owner != tenant:
                raise InputError(
                    f"gives one key to {owner!r:.80} and {tenant!r:.80}",
                    field="api_keys_file",
                    remedy="Give each its own.",
                )
            digests.append(digest)
            tenants.append(tenant)
        return cls(tuple(digests), tuple(tenants))

    def tenant(self, authorization: bytes | None) -> str | None:
        """Whose key the value of an Authorization header holds; None where it is no key.

        The time does not depend on how much of a key is right: digests of equal length are compared, all of them.
        """
        if not self.digests:
            return DEFAULT_TENANT
        scheme, _, key = (authorization or b"").partition(b" ")
        given = _digest(key.strip())
        found = [tenant for known, tenant in zip(self.digests, self.tenants, strict=True) if _same(given, known)]
        return found[0] if scheme.lower() == b"bearer" and found else None

    def accept(self, authorization: bytes | None) -> bool:
        """Whether the value of an Authorization header holds a key."""
        return self.tenant(authorization) is not None


def read_api_keys(config: ServerConfig) -> ApiKeys:
    """The keys of a configuration's file and environment variable.

    Raises:
        InputError: the file cannot be read, a source holds no key, the address can be reached from elsewhere and
            there are no keys, or rules are for a tenant that has no key.
    """
    keys: list[str] = []
    if config.api_keys_file is not None:
        try:
            lines = Path(config.api_keys_file).read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read: {error}", field="api_keys_file", remedy="Name a text file.") from error
        keys += _present(lines, "api_keys_file")
    if config.api_keys_env is not None:
        keys += _present(os.environ.get(config.api_keys_env, "").split(","), "api_keys_env")
    if not keys and not config.is_loopback:
        raise InputError(
            f"{config.host!r} can be reached from other machines, and no API key is set",
            field="host",
            remedy="Give api_keys_file or api_keys_env, or listen on 127.0.0.1.",
        )
    found = ApiKeys.of(keys)
    known = found.tenants or (DEFAULT_TENANT,)
    for name in config.tenants:  # rules under a name that is spelled wrong would hold for nobody
        if name not in known:
            raise InputError(
                f"{name!r:.80} has no API key", field="tenants", remedy=f"Use one of: {', '.join(sorted(set(known)))}."
            )
    return found


def _present(candidates: Iterable[str], field: str) -> list[str]:
    keys = [key for line in candidates if (key := line.strip()) and not key.startswith("#")]
    if not keys:
        raise InputError("holds no key", field=field, remedy="Put at least one there.")
    return keys


def _same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
