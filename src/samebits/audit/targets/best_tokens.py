"""How many best tokens to ask for beside each log-probability, where a target refuses the number. Pure.

vLLM takes up to its ``--max-logprobs``, OpenAI 20, others 5 or 8; most name their limit in the refusal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from samebits.audit.targets.refusal import REFUSING, UNNAMED, refused_part, without_name
from samebits.audit.targets.target import Ask
from samebits.audit.targets.wire import wanted_extras

# Where no limit is named, or the one that was named is refused, too; 0 asks for the chosen token's alone.
STEPS: Final = (5, 1, 0)
PARTS: Final = ("top_logprobs", "logprobs")  # vLLM names the latter when it means the former
# The part itself is refused, whatever its number.
_UNKNOWN: Final = re.compile(
    r"support|unrecogni[sz]ed|unknown|unexpected|extra|not permitted|not allowed|forbidden|unavailable"
)
# Two forms: 12, and the end of 0-12.
_NUMBER: Final = re.compile(r"(?:\d+-)?(\d+)\.?")
# A nought that is the most, and not the lower end of a range.
_NONE_AT_ALL: Final = re.compile(r"(?:max\w*|most|allowed|exceed|up to|<=|≤)[^\d]*\b0\b")


def fewer_best_tokens(
    asked: int, status: int, error: Mapping[str, Any], model: str, *, named_before: bool
) -> int | None:
    """How many to ask for next after a refusal; None where it is not about their number.

    Args:
        asked: how many the refused request asked for.
        status, error, model: see ``refused_part``.
        named_before: whether a limit that a refusal named was asked for already; it is then stepped down.
    """
    part = refused_part(error, model)
    if asked == 0 or status not in REFUSING or part not in PARTS:
        return None
    said = without_name(str(error.get("message")).lower(), model)
    numbers = [int(found[1]) for word in re.findall(r"[\w.-]+", said) if (found := _NUMBER.fullmatch(word))]
    limit = max((n for n in numbers if 0 < n < asked), default=0 if _NONE_AT_ALL.search(said) else None)
    if limit is not None and not named_before:
        return limit
    about_number = part == "top_logprobs" or asked in numbers
    if limit is None and (status not in UNNAMED or not about_number or _UNKNOWN.search(said)):
        return None
    return next(step for step in STEPS if step < asked)


def most_refusals(probes: tuple[Ask, ...]) -> int:
    """How many refusals first questions can meet at most: of each part that may be left out, of the name of the limit
    of tokens, and of numbers of best tokens: the one asked for, the one named, and the steps.
    """
    asked = max((probe.top_logprobs or 0 for probe in probes), default=0)
    numbers = 1 + sum(step < asked for step in STEPS) if asked else 0
    return len(wanted_extras(probes)) + 1 + numbers
