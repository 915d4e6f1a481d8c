"""Log-probabilities in OpenAI's two shapes. A token's bytes are exact; its text shows U+FFFD for what is not UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samebits.engine import TopLogprob
from samebits.models.tokenizer import Tokenizer


def chat_entry(tokenizer: Tokenizer, token_id: int, logprob: float, top: Sequence[TopLogprob]) -> dict[str, Any]:
    """One element of ``logprobs.content``."""
    best = [_token(tokenizer, t.token_id) | {"logprob": t.logprob} for t in top]
    return _token(tokenizer, token_id) | {"logprob": logprob, "top_logprobs": best}


def _token(tokenizer: Tokenizer, token_id: int) -> dict[str, Any]:
    """Text and bytes; a special token has its name and no bytes, since it adds none to the text."""
    content = tokenizer.token_bytes(token_id)
    special = token_id in tokenizer.special_ids
    return {"token": content.decode("utf-8", "replace"), "bytes": None if special else list(content)}


def legacy_name(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as the legacy shape spells it: its text, or ``bytes:`` and escapes where it is not UTF-8."""
    content = tokenizer.token_bytes(token_id)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)


class LegacyLogprobs:
    """Builds the legacy shape of one choice, token by token.

    Args:
        offset: characters of the text before the first token.
    """

    def __init__(self, tokenizer: Tokenizer, offset: int) -> None:
        self._tokenizer = tokenizer
        self._stream = tokenizer.stream()
        self._offset = offset

    def entry(self, token_id: int, logprob: float | None, top: Sequence[TopLogprob] | None) -> dict[str, list[Any]]:
        """The lists of one token; those of several are joined by ``join``. The first token of all has no
        log-probability: None.
        """
        at = self._offset
        self._offset += len(self._stream.push(token_id))
        best: dict[str, float] = {}
        for candidate in top or ():  # best first: of two ids with one text the better is shown
            best.setdefault(legacy_name(self._tokenizer, candidate.token_id), candidate.logprob)
        return {
            "tokens": [legacy_name(self._tokenizer, token_id)],
            "token_logprobs": [logprob],
            "top_logprobs": [None if top is None else best],
            "text_offset": [at],
        }


def join(entries: Sequence[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """The legacy shape of several tokens."""
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return {name: [value for entry in entries for value in entry[name]] for name in names}
