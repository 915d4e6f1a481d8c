"""Requests of /tokenize and /detokenize."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from samebits.api.schema_chat import Message
from samebits.api.schema_common import TokenId
from samebits.api.schema_strict import Many, Strict
from samebits.api.schema_tools import Tool


class TokenizeRequest(Strict):
    """The body of POST /tokenize: either a prompt or messages."""

    model: str = Field(description="A name from /v1/models.")
    prompt: str | None = None
    messages: Annotated[Many[Message], Field(min_length=1)] | None = None
    tools: Many[Tool] | None = Field(None, description="With messages: functions that the model may call.")
    add_special_tokens: bool | None = Field(None, description="For a prompt; default true.")
    return_token_strs: bool | None = Field(None, description="Add the text of each token.")


class DetokenizeRequest(Strict):
    """The body of POST /detokenize."""

    model: str = Field(description="A name from /v1/models.")
    tokens: Many[TokenId]
