"""Requests of /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from samebits.api.schema_common import NotSupported, Sampling, Strict


class TextPart(Strict):
    """A piece of a message. Only text is supported."""

    type: Literal["text"]
    text: str


def _kind(content: object) -> str:
    return "<parts>" if isinstance(content, list) else "<text>"


Content = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[TextPart], Tag("<parts>")],
    Discriminator(_kind),
]


class Message(Strict):
    """One turn. Parts of the content are joined with nothing between them."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    name: NotSupported = None
    refusal: NotSupported = None
    audio: NotSupported = None
    function_call: NotSupported = None

    def rendered(self) -> dict[str, Any]:
        """The message as chat templates know it. ``developer`` is OpenAI's newer name of ``system``."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ChatRequest(Sampling):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1, lt=2**31, description="The older name of max_completion_tokens.")
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31, description="Default: to the context's end.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20, description="Needs logprobs.")
    store: Literal[False] | None = Field(None, description="Nothing is stored.")
    service_tier: Literal["auto", "default"] | None = None
    functions: NotSupported = None
    function_call: NotSupported = None
    modalities: NotSupported = None
    audio: NotSupported = None
    prediction: NotSupported = None
    reasoning_effort: NotSupported = None
    verbosity: NotSupported = None
    web_search_options: NotSupported = None
