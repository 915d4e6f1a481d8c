"""Requests of /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from samebits.api.schema_common import NotSupported, Sampling
from samebits.api.schema_strict import Many, Strict
from samebits.api.schema_tools import Tool, ToolCall, ToolChoice
from samebits.engine.params import MAX_TOP_LOGPROBS


class TextPart(Strict):
    """A piece of a message. Only text is supported."""

    type: Literal["text"]
    text: str


def _kind(content: object) -> str:
    return "<parts>" if isinstance(content, list) else "<text>"


Content = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[Many[TextPart], Tag("<parts>")],
    Discriminator(_kind),
]


class Message(Strict):
    """One turn. Parts of the content are joined with nothing between them."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = Field(None, description="Null only beside tool_calls.")
    tool_calls: Many[ToolCall] | None = Field(None, description="Of the assistant: calls of an earlier answer.")
    tool_call_id: str | None = Field(None, description="Of a tool: the call that it answers.")
    parsed: Any = Field(None, description="Without effect: OpenAI's client adds it to what it has parsed.")
    name: NotSupported = None
    refusal: NotSupported = None
    audio: NotSupported = None
    function_call: NotSupported = None

    @property
    def text(self) -> str | None:
        """The content as one text."""
        if self.content is None or isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatRequest(Sampling):
    """The body of POST /v1/chat/completions."""

    messages: Many[Message] = Field(min_length=1)
    tools: Many[Tool] | None = Field(None, description="Functions that the model may call, at most 128.")
    tool_choice: ToolChoice | None = Field(None, description="Default auto, where there are tools.")
    parallel_tool_calls: bool | None = Field(
        None, description="Whether an answer may hold several calls; default true."
    )
    max_tokens: int | None = Field(None, ge=1, lt=2**31, description="The older name of max_completion_tokens.")
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31, description="Default: to the context's end.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS, description="Needs logprobs.")
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
