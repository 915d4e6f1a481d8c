"""What the text of an answer is to be, as requests of the older routes say it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from samebits.api.schema_strict import Many, Strict


class PlainFormat(Strict):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class NamedSchema(Strict):
    """A schema, and what it is called."""

    model_config = ConfigDict(protected_namespaces=())

    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$", description="Without effect.")
    description: str | None = Field(None, description="Without effect.")
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = Field(None, description="Default true: refuse what cannot be enforced.")


class SchemaFormat(Strict):
    """JSON that satisfies a schema."""

    model_config = ConfigDict(protected_namespaces=())

    type: Literal["json_schema"]
    json_schema: NamedSchema


def _format_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "<schema>" if kind == "json_schema" else "<plain>"


ResponseFormat = Annotated[
    Annotated[PlainFormat, Tag("<plain>")] | Annotated[SchemaFormat, Tag("<schema>")], Discriminator(_format_kind)
]


class StructuredOutputs(Strict):
    """Forms that OpenAI's response_format does not have: exactly one of them."""

    model_config = ConfigDict(protected_namespaces=())

    json_schema: dict[str, Any] | None = Field(None, alias="json", description="A schema; always strict.")
    regex: str | None = Field(None, description="A pattern that the whole text matches, in the dialect of JSON Schema.")
    choice: Many[str] | None = Field(None, description="One of these texts.")
    grammar: str | None = Field(None, description="A grammar in the Lark dialect of llguidance.")
