"""Requests of /v1/completions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from samebits.api.schema_common import MOST_PROMPTS, NotSupported, Sampling

TokenIds = Annotated[list[int], Field(min_length=1)]


class CompletionRequest(Sampling):
    """The body of POST /v1/completions."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS)]
        | TokenIds
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MOST_PROMPTS)]
    ) = Field(description="A text, several, token ids, or several lists of them.")
    max_tokens: int | None = Field(None, ge=1, lt=2**31, description="Default 16.")
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = Field(None, description="Put the prompt before the answer.")
    add_special_tokens: bool | None = Field(
        None,
        description="Default true: a text gets the model's BOS. False where it holds its own.",
    )
    best_of: NotSupported = None
    suffix: NotSupported = None
