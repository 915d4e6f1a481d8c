"""Structured output: what an answer is to look like, enforced as it is written, judged when it is done."""

from samebits.structured.compiler import Grammar, GrammarCompiler
from samebits.structured.grammar import GrammarConstraint, Vocabulary
from samebits.structured.spec import (
    Choice,
    Frame,
    Framed,
    JsonObject,
    JsonSchema,
    Lark,
    Regex,
    StructuredSpec,
    spec_digest,
)
from samebits.structured.validate import validate

__all__ = [
    "Choice",
    "Frame",
    "Framed",
    "Grammar",
    "GrammarCompiler",
    "GrammarConstraint",
    "JsonObject",
    "JsonSchema",
    "Lark",
    "Regex",
    "StructuredSpec",
    "Vocabulary",
    "spec_digest",
    "validate",
]
