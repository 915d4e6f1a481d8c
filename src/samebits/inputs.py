"""What callers of the Python API pass: one prompt or many, and what goes with each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from samebits.engine import SamplingParams
from samebits.errors import InputError, shown
from samebits.structured import StructuredSpec

Prompt = str | Sequence[Mapping[str, Any]] | Sequence[int]
PROMPT_REMEDY = "Give a text, a list of messages, a list of token ids, or a list of those."


def is_prompt(value: object) -> TypeGuard[Prompt]:
    """Whether it is one prompt, by all of its elements."""
    return isinstance(value, str) or is_ids(value) or is_conversation(value)


def is_ids(value: object) -> TypeGuard[Sequence[int]]:
    """Whether it is a list of token ids; an empty list counts."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "iu"
    return _is_list(value) and all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in value)


def is_conversation(value: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Whether it is a list of messages, one or more."""
    return _is_list(value) and len(value) > 0 and all(isinstance(i, Mapping) for i in value)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def split_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or many, as a list.

    Raises:
        InputError: neither a prompt nor a list of prompts, or an empty list.
    """
    if isinstance(prompts, list | tuple) and not prompts:
        raise InputError("is empty", field="prompts", remedy=PROMPT_REMEDY)
    if is_prompt(prompts):
        return [prompts]
    given: object = prompts
    many = list(given) if isinstance(given, np.ndarray) and given.ndim > 0 else given
    if not isinstance(many, list | tuple):
        raise InputError(f"{type(prompts).__name__} is no kind of prompt", field="prompts", remedy=PROMPT_REMEDY)
    each: list[Prompt] = []
    for i, prompt in enumerate(many):
        if not is_prompt(prompt):
            raise InputError(f"{shown(prompt)} is not a prompt", field=f"prompts[{i}]", remedy=PROMPT_REMEDY)
        each.append(prompt)
    return each


def split_params(params: object, prompts: int) -> list[SamplingParams]:
    """Parameters for each of so many prompts: one for all, one for each, or None for the defaults.

    Raises:
        InputError: something else, or another number of them.
    """
    one = SamplingParams() if params is None else params
    each: list[SamplingParams] = []
    for value in one if isinstance(one, list | tuple) else [one] * prompts:
        if not isinstance(value, SamplingParams):
            raise InputError(
                f"{type(value).__name__} is not SamplingParams", field="params", remedy="Give SamplingParams(…)."
            )
        each.append(value)
    if len(each) != prompts:
        raise InputError(
            f"{len(each)} for {prompts} prompts", field="params", remedy="Give one, or one for each prompt."
        )
    return each


def split_structured(structured: object, prompts: int) -> list[StructuredSpec | None]:
    """Structures for each of so many prompts: one or None for all, or one or None for each.

    Raises:
        InputError: something else, or another number of them.
    """
    each: list[StructuredSpec | None] = []
    for value in structured if isinstance(structured, list | tuple) else [structured] * prompts:
        if value is not None and not isinstance(value, StructuredSpec):
            raise InputError(
                f"{type(value).__name__} is no structure",
                field="structured",
                remedy="Give JsonSchema.of(…) or another.",
            )
        each.append(value)
    if len(each) != prompts:
        raise InputError(
            f"{len(each)} for {prompts} prompts", field="structured", remedy="Give one, or one for each prompt."
        )
    return each
