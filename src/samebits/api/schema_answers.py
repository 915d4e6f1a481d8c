"""What the routes answer, for /openapi.json; tests compare real answers with it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from samebits.gateway.levels import Level


class Answer(BaseModel):
    """An answer or a part of one: exactly these fields, but for those that a request asks for."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Answer):
    """What is wrong, and whose fault it is."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(Answer):
    """Every error has this shape."""

    error: ErrorDetail


class PromptDetails(Answer):
    """Of the prompt's tokens."""

    cached_tokens: int


class Usage(Answer):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Param(Answer):
    """A sampling parameter in effect, and where it came from: request, route, samebits, or the model's file and key."""

    value: Any
    origin: str


class ToolError(Answer):
    """A choice that announced calls and holds none."""

    choice: int
    message: str


class GatewayFacts(Answer):
    """What stood before the model, and what it did (docs/guide/gateway.md)."""

    route: str
    engine: Literal["embedded", "upstream"]
    model: str | None
    policy: str
    cache: Literal["hit", "miss", "shared", "refresh", "bypass", "off"]
    level_asked: Level | None
    level_verified: bool | None
    attempt: int
    valid: bool | None
    dropped: list[str]
    renamed: dict[str, str]
    upstream_id: str | None


class Promise(Answer):
    """The promise behind an answer (docs/guide/server.md)."""

    level: Level
    fingerprint: str
    receipt_id: str | None
    seed: int | None
    params: dict[str, Param]
    form_sha256: str | None
    rendered_prompt_sha256: str | None
    prompt_tokens_sha256: str
    output_tokens_sha256: str
    logprobs_sha256: str
    cached_prompt_tokens: int
    prefill_chunks: int
    warnings: list[str]
    tool_errors: list[ToolError] = Field(default=[], description="With tools.")
    gateway: GatewayFacts | None = Field(default=None, description="Where a gateway had a part in it.")


class TopToken(Answer):
    """One of the best tokens at a position."""

    token: str
    bytes: list[int] | None
    logprob: float


class Token(TopToken):
    """A token of the output."""

    top_logprobs: list[TopToken]


class ChatLogprobs(Answer):
    """Log-probabilities of the output's tokens."""

    content: list[Token]
    refusal: None


class CalledFunction(Answer):
    """A function and what it is called with."""

    name: str
    arguments: str


class ToolCall(Answer):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Answer):
    """The answer's message."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[ToolCall] = Field(default=[], description="Where the model calls.")


class Beam(Answer):
    """What a hypothesis of a beam search is ordered by."""

    score: float
    logprob: float


class ChatChoice(Answer):
    """One of n."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    token_ids: list[int] = Field(default=[], description="With return_token_ids.")
    beam: Beam | None = Field(default=None, description="With use_beam_search.")


class ChatCompletion(Answer):
    """The answer of /v1/chat/completions without stream."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    samebits: Promise
    prompt_token_ids: list[int] = Field(default=[], description="With return_token_ids.")


class LegacyTokens(Answer):
    """Log-probabilities in the shape of the older route."""

    tokens: list[str]
    token_logprobs: list[float | None] = Field(description="Null for the first token of an echoed prompt.")
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Answer):
    """One of n for each prompt."""

    index: int
    text: str
    logprobs: LegacyTokens | None
    finish_reason: Literal["stop", "length"]
    token_ids: list[int] = Field(default=[], description="With return_token_ids.")
    beam: Beam | None = Field(default=None, description="With use_beam_search.")
    prompt_token_ids: list[int] = Field(default=[], description="With return_token_ids.")


class TextCompletion(Answer):
    """The answer of /v1/completions without stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
    samebits: Promise


class ModelFacts(Answer):
    """What samebits knows of a model."""

    fingerprint: str | None
    profile: str | None
    level: Level
    level_verified: bool | None
    context_length: int | None
    vocab_size: int | None


class ModelAnswer(Answer):
    """One model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    samebits: ModelFacts


class ModelList(Answer):
    """All models."""

    object: Literal["list"]
    data: list[ModelAnswer]


class Status(Answer):
    """Whether the server works."""

    status: Literal["ok", "failed", "draining"]
    faults: dict[str, str]


class Tokenized(Answer):
    """Token ids of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    tokens_sha256: str
    warnings: list[str]
    token_strs: list[str] = Field(default=[], description="With return_token_strs.")


class Detokenized(Answer):
    """The text of token ids."""

    prompt: str


class Flushed(Answer):
    """How many pages of the prefix cache were given up."""

    pages: int


class ReceiptSignature(Answer):
    """Of a receipt."""

    keyid: str
    sig: str


class ReceiptEnvelope(Answer):
    """A receipt: a DSSE envelope (docs/receipt.md)."""

    payload: str
    payloadType: str  # noqa: N815  DSSE's own name
    signatures: list[ReceiptSignature]


class NativeMeta(Answer):
    """What /generate tells besides the text."""

    id: str
    finish_reason: dict[str, Any]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    input_token_logprobs: list[tuple[float | None, int, str | None]] = Field(
        default=[], description="With logprob_start_len; null for the first token of all."
    )
    input_top_logprobs: list[list[tuple[float, int, str | None]] | None] = Field(
        default=[], description="With logprob_start_len and top_logprobs_num."
    )
    output_token_logprobs: list[tuple[float, int, str | None]] = Field(default=[], description="With return_logprob.")
    output_top_logprobs: list[list[tuple[float, int, str | None]]] = Field(
        default=[], description="With top_logprobs_num."
    )
    samebits: Promise


class NativeAnswer(Answer):
    """One answer of /generate."""

    text: str
    output_ids: list[int]
    meta_info: NativeMeta
