"""What a refusal is about: the part of a request that a target does not take, and what its user can do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from samebits.audit.targets.wire import EXTRAS

# Statuses by which servers refuse a parameter: OpenAI answers 403 where a model may not tell log-probabilities, others
# 500 or 501 to what they never heard of.
REFUSING: Final = frozenset({400, 403, 405, 415, 422, 500, 501})
# Those by which they may refuse without a word about what.
UNNAMED: Final = frozenset({400, 422})
NEWER_LIMIT: Final = "max_completion_tokens"  # in place of max_tokens
_TOKENS: Final = "Give another --max-tokens."
# Parts that cannot be left out without making it another experiment, so that the user has to decide.
REMEDIES: Final[Mapping[str, str]] = {
    "temperature": "Give --own-sampling, which sends none, or another --temperature.",
    "top_p": "Leave out --top-p, or give another one.",
    "max_tokens": _TOKENS,
    NEWER_LIMIT: _TOKENS,
    "messages": "Give other --prompts: the target does not take these roles, this content or this length.",
    "stream": "Give --streaming off.",
    "model": "Name a model of the target by --model.",
}
# What servers call refusals whose words name no part: OpenAI (403 of a model that the key may not use; a prompt that is
# too long), Azure's filter, and llama.cpp.
_CALLED: Final = {
    "model_not_found": "model",
    "context_length_exceeded": "messages",
    "content_filter": "messages",
    "exceed_context_size_error": "messages",
}
_TOO_LONG: Final = "maximum context length"  # in messages of OpenAI, vLLM and SGLang
CHECK: Final = "Check address and --model."
OTHERWISE: Final = (
    f"{CHECK} If it is about a parameter: --own-sampling sends no temperature, --streaming off no "
    "stream, --top-logprobs -1 asks for no log-probabilities."
)
# These are ordinary words in messages; only the field `param` names a part by them.
_WORDS: Final = frozenset({"messages", "stream", "model"})
_NAMES: Final = {name: name for name in (*EXTRAS, *REMEDIES)} | {
    "json_schema": "response_format",
    "input_tokens": "messages",
}


def refused_part(error: Mapping[str, Any], model: str) -> str | None:
    """The part of a request that a refusal names: one of EXTRAS or of REMEDIES; None where it names none.

    Args:
        error: OpenAI's error object. Its ``param`` counts before its ``code`` and ``type``, and these before its
            message; there the part named first.
        model: name of the model, which may hold the name of a part.
    """
    param = error.get("param")
    if isinstance(param, str):
        for step in re.split(r"[.\[\]]", param.lower()):
            if step in _NAMES:
                return _NAMES[step]
    for called in (error.get("code"), error.get("type")):
        if isinstance(called, str) and called in _CALLED:
            return _CALLED[called]
    said = without_name(str(error.get("message")).lower(), model)
    words = re.findall(r"\w+", said)
    named = next((_NAMES[word] for word in words if word in _NAMES and word not in _WORDS), None)
    return "messages" if named is None and _TOO_LONG in said else named


def without_name(said: str, model: str) -> str:
    """A message in lower case without the name of the model."""
    return re.sub(rf"(?<!\w){re.escape(model.lower())}(?!\w)", "", said) if model else said


def refused_extra(status: int, error: Mapping[str, Any], extras: frozenset[str], model: str) -> str | None:
    """Which of the extras of a request to leave out after a refusal; None where that would not help.

    That is the one that it names, or the least common one where it says nothing about any part.
    """
    part = refused_part(error, model)
    if status in REFUSING and part in extras:
        return part
    return next((name for name in EXTRAS if name in extras), None) if part is None and status in UNNAMED else None


def wants_newer_limit(status: int, error: Mapping[str, Any]) -> bool:
    """Whether a refusal of ``max_tokens`` is about its name."""
    return status in REFUSING and NEWER_LIMIT in f"{error.get('param')} {error.get('message')}"


def is_about_request(status: int, error: Mapping[str, Any], model: str) -> bool:
    """Whether sending the same again is useless: no trouble of the server that may pass."""
    named = status in REFUSING and refused_part(error, model) is not None
    return named or 300 <= status < 400 or status in (400, 403, 404, 405, 415, 422)
