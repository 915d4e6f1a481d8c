"""Requests of /v1/responses, without what needs a memory between requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, ModelWrapValidatorHandler, PrivateAttr, Tag, model_validator

from samebits.api.schema_common import Metadata, NotSupported
from samebits.api.schema_strict import Many, Strict
from samebits.api.schema_tools import FunctionDefinition
from samebits.engine.params import MAX_TOP_LOGPROBS
from samebits.gateway.levels import Level

Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Strict):
    """A piece of a message."""

    type: Literal["input_text"]
    text: str


class OutputText(Strict):
    """A piece of an earlier answer, as it came."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any] | None = Field(None, description="Without effect.")
    logprobs: list[Any] | None = Field(None, description="Without effect.")


def _kind(value: object) -> str:
    return "<list>" if isinstance(value, list) else "<text>"


def _part_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "<output>" if kind == "output_text" else "<input>"


Part = Annotated[
    Annotated[InputText, Tag("<input>")] | Annotated[OutputText, Tag("<output>")], Discriminator(_part_kind)
]
Content = Annotated[Annotated[str, Tag("<text>")] | Annotated[Many[Part], Tag("<list>")], Discriminator(_kind)]


class MessageItem(Strict):
    """A turn. Parts of the content are joined with nothing between them."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: str | None = Field(None, description="Without effect.")
    status: Status | None = Field(None, description="Without effect.")
    phase: NotSupported = None


class CallItem(Strict):
    """A call that an earlier answer made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str = Field(description="A JSON object, as text.")
    id: str | None = Field(None, description="Without effect.")
    status: Status | None = Field(None, description="Without effect.")


class ResultItem(Strict):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content
    id: str | None = Field(None, description="Without effect.")
    status: Status | None = Field(None, description="Without effect.")


def _item_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return {"function_call": "<call>", "function_call_output": "<result>"}.get(str(kind), "<message>")


Item = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[CallItem, Tag("<call>")]
    | Annotated[ResultItem, Tag("<result>")],
    Discriminator(_item_kind),
]
Input = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[Many[Item], Tag("<list>"), Field(min_length=1)], Discriminator(_kind)
]


class FlatTool(FunctionDefinition):
    """A function that the model may call. Its keys stand in the prompt in the order in which they are sent."""

    type: Literal["function"]
    _sent: Mapping[str, Any] = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, sent: Any, handler: ModelWrapValidatorHandler[FlatTool]) -> FlatTool:
        tool = handler(sent)
        tool._sent = sent
        return tool

    @property
    def sent(self) -> Mapping[str, Any]:
        """The tool as it was sent."""
        return self._sent


class NamedFunction(Strict):
    """The function that is to be called."""

    type: Literal["function"]
    name: str


def _choice_kind(value: object) -> str:
    return "<word>" if isinstance(value, str) else "<object>"


FlatChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")] | Annotated[NamedFunction, Tag("<object>")],
    Discriminator(_choice_kind),
]


class PlainFormat(Strict):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Strict):
    """JSON that satisfies a schema."""

    model_config = ConfigDict(protected_namespaces=())

    type: Literal["json_schema"]
    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$", description="Without effect.")
    description: str | None = Field(None, description="Without effect.")
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = Field(None, description="Default true: refuse what cannot be enforced.")


def _format_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "<schema>" if kind == "json_schema" else "<plain>"


Format = Annotated[
    Annotated[PlainFormat, Tag("<plain>")] | Annotated[SchemaFormat, Tag("<schema>")], Discriminator(_format_kind)
]


class TextConfig(Strict):
    """What the text is to be."""

    format: Format | None = None
    verbosity: NotSupported = None


class ResponseStreamOptions(Strict):
    """Of a stream."""

    include_obfuscation: bool | None = Field(None, description="Accepted; nothing is ever padded here.")


class ResponseRequest(Strict):
    """The body of POST /v1/responses."""

    model: str = Field(description="A name from /v1/models.")
    input: Input = Field(description="A text of the user, or items.")
    instructions: str | None = Field(None, description="A system message before the input.")
    max_output_tokens: int | None = Field(None, ge=1, lt=2**31, description="Default: to the context's end.")
    temperature: float | None = Field(None, ge=0, le=2, description="0 is greedy.")
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, lt=2**31, description="0 keeps all ids.")
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="64-bit signed; drawn and reported when absent.")
    text: TextConfig | None = None
    tools: Many[FlatTool] | None = Field(None, description="Functions that the model may call, at most 128.")
    tool_choice: FlatChoice | None = Field(None, description="Default auto, where there are tools.")
    parallel_tool_calls: bool | None = Field(
        None, description="Whether an answer may hold several calls; default true."
    )
    include: Many[Literal["message.output_text.logprobs"]] | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS, description="Needs include.")
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    determinism: Level | None = Field(None, description="The level that must be promised.")
    store: Literal[False] | None = Field(None, description="Nothing is stored.")
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = Field(None, description="Nothing is cut: what is too long is refused.")
    service_tier: Literal["auto", "default"] | None = None
    previous_response_id: NotSupported = None
    conversation: NotSupported = None
    prompt: NotSupported = None
    reasoning: NotSupported = None
    max_tool_calls: NotSupported = None
    # Without effect on the answer, and accepted for that reason:
    user: str | None = None
    metadata: Metadata | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
