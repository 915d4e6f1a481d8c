"""What /v1/responses answers, for /openapi.json."""

from __future__ import annotations

from typing import Any, Literal

from samebits.api.schema_answers import Answer, Promise, Token


class OutputPart(Answer):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Token]


class MessageOutput(Answer):
    """What is said."""

    id: str
    type: Literal["message"]
    status: Literal["completed", "incomplete"]
    role: Literal["assistant"]
    content: list[OutputPart]


class CallOutput(Answer):
    """What is called."""

    id: str
    type: Literal["function_call"]
    status: Literal["completed"]
    call_id: str
    name: str
    arguments: str


class IncompleteDetails(Answer):
    """Why an answer is not complete."""

    reason: Literal["max_output_tokens"]


class Reasoning(Answer):
    """Not supported here."""

    effort: None
    summary: None


class TextFormat(Answer):
    """The format asked for."""

    format: dict[str, Any]


class InputDetails(Answer):
    """Of the prompt's tokens."""

    cached_tokens: int


class OutputDetails(Answer):
    """Of the output's tokens."""

    reasoning_tokens: int


class ResponseUsage(Answer):
    """Counts of tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseObject(Answer):
    """The answer of /v1/responses without stream."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    background: Literal[False]
    error: None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[MessageOutput | CallOutput]
    parallel_tool_calls: bool
    previous_response_id: None
    prompt_cache_key: str | None
    reasoning: Reasoning
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: Literal[False]
    system_fingerprint: str
    temperature: float
    text: TextFormat
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage
    user: str | None
    samebits: Promise
