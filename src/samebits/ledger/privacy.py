"""What of a request and its answer is stored: all, digests alone, or all but what patterns find."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from samebits.errors import InputError, shown
from samebits.ledger.canonical import canonical, digest
from samebits.ledger.spelled import Spelled

Mode = Literal["full", "digest-only", "redacted"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
# Found in every text under `redacted`, unless the configuration names patterns of its own.
DEFAULT_PATTERNS: Final[Mapping[str, str]] = {
    "private_key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    "bearer": r"(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{8,}",
    "api_key": r"\b(?:sk|pk|rk|ghp|gho|github_pat|glpat|xox[abprs]|hf)[-_][A-Za-z0-9_-]{8,}",
    "aws_key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "secret": r"(?i)\b(?:api[-_]?key|secret|token|password|passwd|aws_secret_access_key)\b[\"']?\s*[:=]\s*[\"']?"
    r"[^\s\"'&,;]{6,}",
    "url_password": r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",
    # Begins only where a run of letters does, and takes the run to its end: a long text without @ is read once.
    "email": r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
    r"(?:\.*(?:[_%+]|\.[A-Za-z0-9-])[A-Za-z0-9._%+-]*)?",
    "card": r"\b\d(?:[ -]?\d){12,18}\b",
}
# Members that spell a text out once more, token by token, where no pattern can see it.
TOKENWISE: Final = frozenset(
    {
        "bytes",
        "input_ids",
        "logit_bias",
        "logprobs",
        "output_ids",
        "output_token_logprobs",
        "output_top_logprobs",
        "prompt_logprobs",
        "prompt_token_ids",
        "stop_token_ids",
        "text_offset",
        "token_ids",
        "token_logprobs",
        "tokens",
        "top_logprobs",
    }
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Privacy:
    """The policy of a ledger.

    Attributes:
        mode: ``full``, ``digest-only`` or ``redacted``.
        patterns: name → regular expression of Python, tried in this order; used by ``redacted``.

    Raises:
        InputError: an unknown mode, or a pattern that is none.
    """

    mode: Mode = "full"
    patterns: Mapping[str, str] = field(default_factory=lambda: DEFAULT_PATTERNS)
    _compiled: Mapping[str, re.Pattern[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError(
                f"{shown(self.mode)} is unknown", field="ledger.privacy", remedy=f"Give one of: {', '.join(MODES)}."
            )
        compiled = {}
        for name, pattern in self.patterns.items():
            if not _PLAIN.fullmatch(name):
                raise InputError(
                    f"{shown(name)} is no name", field="ledger.patterns", remedy="Use letters, digits and . _ -"
                )
            try:
                compiled[name] = re.compile(pattern)
            except (re.error, TypeError) as error:
                raise InputError(
                    f"is no regular expression: {error}", field=f"ledger.patterns.{name}", remedy="Correct it."
                ) from error
            if compiled[name].search("") is not None:
                raise InputError(
                    "finds the empty text", field=f"ledger.patterns.{name}", remedy="Ask for one character at least."
                )
        object.__setattr__(self, "_compiled", compiled)

    def payload(self, value: Any) -> Any:
        """What is stored of a request or an answer; None where it is not stored."""
        if self.mode == "full":
            return value
        return None if self.mode == "digest-only" else self._redacted(value)

    def error(self, value: Any) -> Any:
        """What is stored of an error: under ``digest-only`` its type and code, since its message may quote."""
        if self.mode != "digest-only":
            return self.payload(value)
        if not isinstance(value, dict):
            return None
        return {
            name: value[name]
            for name in ("type", "code")
            if isinstance(value.get(name), str | int) and _PLAIN.fullmatch(str(value[name]))
        }

    def param(self, name: str, value: Any) -> Any:
        """What is stored of an effective parameter's value: never a text of the caller's under ``digest-only``."""
        if self.mode == "full" or value is None or isinstance(value, bool | int | float):
            return value
        if value and (self.mode == "digest-only" or name in TOKENWISE):
            return _digested(value)
        return self._redacted(value)

    def text(self, value: str) -> str:
        """What is stored of a short text that may be the caller's, such as the name of a model."""
        return value if self.mode == "full" else self._patterns_out(value)

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._patterns_out(value)
        if isinstance(value, list | tuple):
            if value and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
                return _digested(value)  # token ids are a text too
            return [self._redacted(item) for item in value]
        if isinstance(value, dict):
            kept: dict[str, Any] = {}
            for key, item in value.items():
                name, number = self._patterns_out(key) if isinstance(key, str) else key, 2
                while name in kept:  # two keys that became one; neither may be lost
                    name, number = f"{self._patterns_out(key)}#{number}", number + 1
                kept[name] = _digested(item) if key in TOKENWISE and item else self._redacted(item)
            return kept
        digits = _digits(value)
        return value if self._patterns_out(digits) == digits else self._patterns_out(digits)

    def _patterns_out(self, text: str) -> str:
        for name, pattern in self._compiled.items():
            text = pattern.sub(f"[redacted:{name}]", text)
        return text


def _digits(value: Any) -> str:
    """Those of a number that may be more than one: an integer, or what has more than a double."""
    if isinstance(value, Spelled):
        return value.text
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _digested(value: Any) -> dict[str, str]:
    return {"digest": digest(canonical(value))}
