"""The base of all requests. Of many mistakes the first is told: to list them all took seconds that others wait for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

T = TypeVar("T")
Many = Annotated[list[T], Field(fail_fast=True)]


class Strict(BaseModel):
    """A request or a part of one: no unknown fields, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _with_one_unknown(cls, sent: Any) -> Any:
        """What was sent, with the first of its unknown fields alone where there are more fields than are known."""
        known = _names(cls)
        if not isinstance(sent, dict) or len(sent) <= len(known):
            return sent
        unknown = next(name for name in sent if name not in known)
        return {name: value for name, value in sent.items() if name in known or name == unknown}


@cache
def _names(kind: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in kind.model_fields.items())


def first_fault(good: Callable[[str, Any], bool]) -> BeforeValidator:
    """For a dict: where an entry is not good, the first such entry stands for all."""

    def reduced(sent: Any) -> Any:
        if not isinstance(sent, dict):
            return sent
        fault = next((name for name, value in sent.items() if not good(name, value)), None)
        return sent if fault is None else {fault: sent[fault]}

    return BeforeValidator(reduced)
