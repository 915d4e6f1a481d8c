"""The jinja2 environments of reports: whatever comes from outside is made visible and escaped, wherever it stands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from samebits.audit.exhibits import Parting, Side
from samebits.audit.report.words import condition, moment, quoted, visible


def html_environment() -> Environment:
    """For HTML."""
    return _environment(lambda value: visible(value) if type(value) is str else value, autoescape=True)


def markdown_environment() -> Environment:
    """For Markdown: `Markup` passes as it is, every other text is escaped."""
    return _environment(
        lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else markdown(value),
        autoescape=False,
    )


def _environment(finalize: Callable[[Any], Any], *, autoescape: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("samebits.audit.report"),
        autoescape=autoescape,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "condition": condition,
        "exact": repr,
        "fenced": fenced,
        "moment": moment,
        "probability": probability,
        "quoted": quoted,
        "split_token": split_token,
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

_MARKS = frozenset("\\`*_{}[]()#+-.!|~$@<>&:")


def markdown(text: str) -> Markup:
    """A text on one line in which no character means anything to Markdown or HTML."""
    line = " ".join(visible(text).split())
    return Markup("".join(f"&#{ord(c)};" if c in _MARKS else c for c in line))


def fenced(text: str) -> Markup:
    """A text as a block of code; its fence is longer than any in it."""
    shown = visible(text)
    fence = "`" * max(3, 1 + max((len(run) for run in _runs(shown)), default=0))
    return Markup(f"{fence}text\n{shown}\n{fence}")


def _runs(text: str) -> list[str]:
    return "".join(c if c == "`" else " " for c in text).split()
