"""Requests of /v1/completions."""

from __future__ import annotations

from pydantic import Field

from samebits.api.schema_common import NotSupported, Prompt, Sampling
from samebits.engine.params import MAX_TOP_LOGPROBS


class CompletionRequest(Sampling):
    """The body of POST /v1/completions."""

    prompt: Prompt = Field(description="A text, several, token ids, or several lists of them.")
    max_tokens: int | None = Field(None, ge=1, lt=2**31, description="Default 16.")
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    echo: bool | None = Field(None, description="Put the prompt before the answer.")
    add_special_tokens: bool | None = Field(
        None,
        description="Default true: a text gets the model's BOS. False where it holds its own.",
    )
    suffix: NotSupported = None
