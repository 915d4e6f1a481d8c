"""What models refuse, and what then happens to it: refused with a name, or left out with an announcement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from samebits.errors import InputError

_SAMPLING: Final = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"}
)
# Pattern of a model's name to what it refuses, or takes and ignores. A configuration adds to it by `refuses`.
KNOWN: Final[tuple[tuple[re.Pattern[str], frozenset[str]], ...]] = (
    (re.compile(r"(.*/)?(o1|o3|o4|gpt-5)(?![a-z0-9])(?!.*chat).*"), _SAMPLING | {"max_tokens"}),
    (re.compile(r"(.*/)?claude-.*"), frozenset({"seed", "presence_penalty", "frequency_penalty", "logit_bias"})),
)
# The name under which a refused field is sent instead.
NEWER: Final[Mapping[str, str]] = {"max_tokens": "max_completion_tokens"}


def refused_by(model: str, also: tuple[str, ...] = ()) -> frozenset[str]:
    """The parameters that a model refuses, by its name and by what a configuration adds."""
    known = next((refused for pattern, refused in KNOWN if pattern.fullmatch(model)), frozenset[str]())
    return known | frozenset(also)


@dataclass(frozen=True)
class Fitted:
    """A body that a model takes.

    Attributes:
        dropped: what was left out, by name.
        renamed: older to newer name of a field.
    """

    body: dict[str, Any]
    dropped: tuple[str, ...]
    renamed: Mapping[str, str]


def fit(body: Mapping[str, Any], refused: frozenset[str], unmet: Literal["refuse", "announce"]) -> Fitted:
    """A body without what a model refuses. A field that has a newer name is sent under that, whatever the policy.

    Raises:
        InputError: the policy is to refuse; names the first such field.
    """
    fitted: dict[str, Any] = {}
    dropped: list[str] = []
    renamed: dict[str, str] = {}
    for name, value in body.items():
        newer = NEWER.get(name)
        if name not in refused or value is None:
            fitted[name] = value
        elif newer is not None and body.get(newer) is None and newer not in refused:
            fitted[newer], renamed[name] = value, newer
        elif unmet == "announce":
            dropped.append(name)
        else:
            raise InputError(
                "is refused by this model",
                field=name,
                remedy="Leave it out, or choose a policy that announces what it leaves out.",
            )
    return Fitted(fitted, tuple(dropped), renamed)
