"""Tools in requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, ModelWrapValidatorHandler, PrivateAttr, Tag, model_validator

from samebits.api.schema_strict import Strict

MOST_TOOLS: Final = 128  # OpenAI's limit
NAME: Final = "^[a-zA-Z0-9_-]{1,64}$"


class FunctionDefinition(Strict):
    """A function that the model may call."""

    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="JSON schema of the arguments, an object.")
    strict: bool | None = Field(
        None,
        description="Default true. Where a call is demanded: false leaves what cannot be enforced to the validation.",
    )


class Tool(Strict):
    """A tool. Its keys stand in the prompt in the order in which they are sent."""

    type: Literal["function"]
    function: FunctionDefinition
    _sent: Mapping[str, Any] = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, sent: Any, handler: ModelWrapValidatorHandler[Tool]) -> Tool:
        tool = handler(sent)
        tool._sent = sent
        return tool

    @property
    def sent(self) -> Mapping[str, Any]:
        """The tool as it was sent, for the prompt."""
        return self._sent


class FunctionName(Strict):
    """Which function."""

    name: str


class NamedChoice(Strict):
    """The function that is to be called."""

    type: Literal["function"]
    function: FunctionName


def _choice_kind(value: object) -> str:
    return "<object>" if isinstance(value, dict) else "<word>"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")] | Annotated[NamedChoice, Tag("<object>")],
    Discriminator(_choice_kind),
]


class CalledFunction(Strict):
    """A function and what it was called with."""

    name: str
    arguments: str = Field(description="A JSON object, as text.")
    parsed_arguments: Any = Field(None, description="Without effect: OpenAI's client adds it to what it has parsed.")


class ToolCall(Strict):
    """A call that an earlier answer made."""

    id: str
    type: Literal["function"]
    function: CalledFunction
