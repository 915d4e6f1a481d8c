"""Numbers, times and foreign texts as a report writes them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from samebits.audit.intervals import Estimate, Interval

# What no document can hold, or what a reader cannot see although it makes a difference: controls, formats (among them
# those that turn the direction of writing), lone surrogates, private use, and what is not assigned.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
YEAR_10000: Final = 253_402_300_800  # the first second that a date cannot hold
_KEPT: Final = frozenset("\n\t\u200d")  # the last one joins emoji


def visible(text: str) -> str:
    """A text with everything that cannot be seen, or written, as an escape such as ``\\x1b`` or ``\\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c in _KEPT or unicodedata.category(c) not in _UNSEEN else ascii(c)[1:-1] for c in text.replace("\r", "\\r")
    )


def quoted(text: str) -> str:
    """A token in double quotes, on one line: spaces and line ends can be told apart."""
    return visible(json.dumps(text, ensure_ascii=False)).replace("\u200d", "\\u200d")


def share(value: float | None) -> str:
    """A share in per cent; never rounded to 0 or 100 % when it is not."""
    if value is None:
        return "–"
    text = f"{value:.2%}"
    if text == "100.00%" and value < 1:
        return ">99.99%"
    return "<0.01%" if text == "0.00%" and value > 0 else text.replace(".00%", "%")


def short(text: str, most: int = 24) -> str:
    """A name of no more characters than that, with a sign where it was cut; the whole stands elsewhere."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def interval(value: Interval | None) -> str:
    """An interval of shares."""
    return "no interval" if value is None else f"{share(value.low)}\u00a0to\u00a0{share(value.high)}"


def estimate(value: Estimate) -> str:
    """A share with its interval."""
    return share(value.value) + ("" if value.interval is None else f" ({interval(value.interval)})")


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits; whole numbers as they are."""
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def moment(seconds: float | None) -> str:
    """A point in time, UTC."""
    if seconds is None:
        return "not known"
    if not 0 <= seconds < YEAR_10000:
        return f"{seconds:g} s after 1970"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def condition(levels: Iterable[tuple[str, str]]) -> str:
    """A condition in words."""
    return ", ".join(f"{name} {level}" for name, level in levels) or "no conditions"


def told(value: Any) -> str:
    """A value of a document that is only shown: nested lists and objects on one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(f"{name}: {told(x)}" for name, x in value.items()) or "not told"
    if isinstance(value, list | tuple):
        return ", ".join(map(told, value)) or "none"
    return "not told" if value is None else str(value)
