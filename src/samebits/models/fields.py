"""Typed access to the keys of a model's configuration, with errors that name the key."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from samebits.errors import ModelError, shown

_GREATEST_SIZE: Final = 2**31 - 1  # ids and positions are int32
_SURROGATE: Final = re.compile("[\ud800-\udfff]")  # JSON may hold one alone


class _Required:
    """Marks a key without a default."""


_REQUIRED: Final = _Required()


class Fields:
    """Keys of one object of a file. A default is used where the key is absent or null.

    Args:
        raw: the object.
        where: the file, for messages.
        prefix: path of the object in the file, for messages.
    """

    def __init__(self, raw: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.raw = raw
        self._where = where
        self._prefix = prefix

    def positive(self, key: str, *, default: int | _Required = _REQUIRED) -> int:
        """An integer in 1 … 2³¹ − 1."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _GREATEST_SIZE:
            self.fail(key, f"is {shown(value)}, not a positive integer")
        return value

    def optional_positive(self, key: str, *, default: int | None) -> int | None:
        """A positive integer, or None where the key is null; ``default`` where it is absent."""
        value = self.raw.get(key, default)
        return None if value is None else self.positive(key, default=value)

    def number(self, key: str, *, default: float | _Required = _REQUIRED) -> float:
        """A finite number."""
        value = self._get(key, default)
        number = finite(value)
        if number is None:
            self.fail(key, f"is {shown(value)}, not a finite number")
        return number

    def boolean(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"is {shown(value)}, not true or false")
        return value

    def optional_text(self, key: str) -> str | None:
        """Unicode text; None where the key is absent or null."""
        value = self._get(key, None)
        if value is not None and not isinstance(value, str):
            self.fail(key, f"is {shown(value)}, not text")
        if value is not None and _SURROGATE.search(value):
            self.fail(key, "holds a lone surrogate, which is not Unicode text")
        return value

    def refuse_unless(self, key: str, supported: Sequence[object], *, default: object) -> None:
        """Raise unless the value is one that is implemented."""
        value = self._get(key, default)
        if not isinstance(value, bool | int | float | str | None) or value not in supported:
            self.fail(key, f"is {shown(value)}, which is not supported; supported: {supported[0]!r}")

    def fail(self, key: str, message: str) -> NoReturn:
        raise ModelError(
            f"{self._prefix}{key} {message}", field=self._where, remedy="Use a model with a supported value."
        )

    def _get(self, key: str, default: object) -> Any:
        value = self.raw.get(key)
        if value is None:
            value = default
        if value is _REQUIRED:
            self.fail(key, "is missing")
        return value


def finite(value: object) -> float | None:
    """A number as a double; None where it is no number, or none that a double holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the doubles, which JSON may hold
        return None
    return number if math.isfinite(number) else None


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ModelError: the file is missing, or holds no JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(
            f"cannot be read ({error.strerror})", field=str(path), remedy="Download the whole model folder."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelError("is not JSON", field=str(path), remedy="Download the file again.") from error
    if not isinstance(value, dict):
        raise ModelError("is not a JSON object", field=str(path), remedy="Download the file again.")
    return value
