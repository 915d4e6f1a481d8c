"""API keys: where they come from, and how one is checked."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from samebits.api.config import ServerConfig
from samebits.errors import InputError


@dataclass(frozen=True)
class ApiKeys:
    """Digests of the keys that are accepted. None at all: no key is asked for."""

    digests: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, keys: Iterable[str]) -> ApiKeys:
        """Accepts these keys."""
        return cls(tuple(_digest(key.encode()) for key in keys))

    def accept(self, authorization: bytes | None) -> bool:
        """Whether the value of an Authorization header holds a key.

        The time does not depend on how much of a key is right: digests of equal length are compared, all of them.
        """
        if not self.digests:
            return True
        scheme, _, key = (authorization or b"").partition(b" ")
        given = _digest(key.strip())
        found = [hmac.compare_digest(given, known) for known in self.digests]
        return scheme.lower() == b"bearer" and any(found)


def read_api_keys(config: ServerConfig) -> ApiKeys:
    """The keys of a configuration's file and environment variable.

    Raises:
        InputError: the file cannot be read, a source holds no key, or the address can be reached from elsewhere and
            there are no keys.
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
    return ApiKeys.of(keys)


def _present(candidates: Iterable[str], field: str) -> list[str]:
    keys = [key for line in candidates if (key := line.strip()) and not key.startswith("#")]
    if not keys:
        raise InputError("holds no key", field=field, remedy="Put at least one there.")
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
