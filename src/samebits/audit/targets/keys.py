"""API keys: read from where they are kept, sent, and shown nowhere."""

from __future__ import annotations

import os
from pathlib import Path

from samebits.errors import InputError

REDACTED = "[key]"
SHORTEST = 8  # a shorter text may be part of ordinary words, which scrubbing would then tear apart


class ApiKey:
    """A key whose text appears in no representation of it."""

    __slots__ = ("_text", "source")

    def __init__(self, text: str, source: str) -> None:
        text = text.strip()
        if not text.isascii() or any(character.isspace() or not character.isprintable() for character in text):
            raise InputError("the key holds spaces or unusual characters", field=source, remedy="Give one key alone.")
        if len(text) < SHORTEST:
            raise InputError("holds no key", field=source, remedy=f"A key has at least {SHORTEST} characters.")
        self._text, self.source = text, source

    def __repr__(self) -> str:
        return f"ApiKey({self.source})"

    def reveal(self) -> str:
        """The key itself, to be sent."""
        return self._text

    def is_in(self, data: bytes) -> bool:
        """Whether an answer holds it."""
        return self._text.encode("ascii") in data

    def scrub(self, text: str) -> str:
        """A text that came from outside, without the key: servers like to quote it when they refuse it."""
        return text.replace(self._text, REDACTED)


def read_key(*, env: str | None, file: str | None) -> ApiKey | None:
    """The key from an environment variable or from a file; None where neither is named.

    Raises:
        InputError: both are named, or what is named is missing or empty.
    """
    if env is not None and file is not None:
        raise InputError("is given beside key_env", field="key_file", remedy="Give one of them.")
    if env is not None:
        if env not in os.environ:
            raise InputError(f"the variable {env} is not set", field="key_env", remedy="Set it, or name another.")
        return ApiKey(os.environ[env], f"variable {env}")
    if file is not None:
        try:
            text = Path(file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot be read: {type(error).__name__}", field="key_file", remedy="Name a file with one key."
            ) from None
        return ApiKey(text, "key_file")
    return None
