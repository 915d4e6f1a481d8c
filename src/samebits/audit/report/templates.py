"""The jinja2 environments of reports: whatever comes from outside is made visible and escaped, wherever it stands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from samebits.audit.exhibits import Parting, Side
from samebits.audit.report.words import condition, moment, quoted, visible
from samebits.counted import counted, verb


def html_environment() -> Environment:
    """For HTML."""
    return _environment(lambda value: visible(value) if type(value) is str else value)


def markdown_environment() -> Environment:
    """For Markdown."""
    return _environment(lambda value: markdown(value) if type(value) is str else value)


def _environment(finalize: Callable[[Any], Any]) -> Environment:
    environment = Environment(
        loader=PackageLoader("samebits.audit.report"),
        autoescape=True,  # leaves alone what is Markup already
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "condition": condition,
        "counted": counted,
        "exact": repr,
        "fenced": fenced,
        "moment": moment,
        "probability": probability,
        "quoted": quoted,
        "split_token": split_token,
        "verb": verb,
        "unit": lambda unit: "tokens" if unit == "token ids" else unit,
    }
    return environment


def probability(logprob: float) -> str:
    """The probability of a token, in per cent."""
    return f"{math.exp(min(logprob, 0.0)):.4%}"


def split_token(side: Side, parting: Parting) -> tuple[str, str]:
    """The rest of an answer: what differs first, and what follows. White space alone is shown in quotes."""
    text = side.token.text if side.token is not None else None
    first = text if text and parting.unit != "characters" and side.rest.startswith(text) else side.rest[:1]
    return first if first.strip() else quoted(first) if first else "", side.rest[len(first) :]


# ---- Markdown --------------------------------------------------------------------------------------------------------

_MARKS = str.maketrans({c: f"\\{c}" for c in "\\`*_[]|~#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"})
# What begins a list at the beginning of a line, and what becomes a link by itself.
_BEGINS: Final = re.compile(r"^([-+]|\d+[.)])(?=\s|$)")
_LINKS: Final = re.compile(r"(?<=http)(s?):(?=//)|(?<=www)()\.", re.IGNORECASE)


def markdown(text: str) -> Markup:
    """A text on one line in which nothing means anything to Markdown or HTML."""
    line = visible(text).replace("\n", " ").replace("\t", " ").translate(_MARKS)
    line = _LINKS.sub(lambda found: f"{found[1] or ''}&#{ord(found[0][-1])};", line)
    return Markup(_BEGINS.sub(lambda found: f"&#{ord(found[0][0])};{found[0][1:]}", line))


def fenced(text: str) -> Markup:
    """A text as a block of code; its fence is longer than any in it."""
    shown = visible(text)
    fence = "`" * max(3, 1 + max((len(run) for run in _runs(shown)), default=0))
    return Markup(f"{fence}text\n{shown}\n{fence}")


def _runs(text: str) -> list[str]:
    return "".join(c if c == "`" else " " for c in text).split()
