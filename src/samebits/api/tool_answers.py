"""Calls in the choices of a chat answer, whole or in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from samebits.api.job import Job
from samebits.api.output_format import compiled
from samebits.api.prepare import Wanted
from samebits.api.promise import ids_digest
from samebits.api.schema_chat import ChatRequest
from samebits.api.schema_tools import NamedChoice, Tool
from samebits.api.served import Served
from samebits.api.tool_reader import Ending, ToolReader
from samebits.api.tools import Toolbox, call_id, forced_form, toolbox_of
from samebits.engine import Completion, Event
from samebits.errors import InputError
from samebits.models.tool_calls import Dialect
from samebits.structured import Grammar

TOOL_CALLS: Final = "tool_calls"


async def read_tools(
    tools: Sequence[Tool] | None,
    choice: str | NamedChoice | None,
    parallel: bool | None,
    dialect: Dialect | None,
    *,
    inside: str = "function.",
) -> Toolbox | None:
    """What ``toolbox_of`` makes, in a thread where there are tools: many large schemas take seconds.

    Raises:
        InputError: names the field at fault.
    """
    if not tools:
        return toolbox_of(tools, choice, parallel, dialect, inside=inside)
    return await asyncio.to_thread(toolbox_of, tools, choice, parallel, dialect, inside=inside)


async def open_toolbox(served: Served, body: ChatRequest, wanted: Wanted) -> Toolbox | None:
    """The tools of a chat request; see ``read_tools``.

    Raises:
        InputError: they are wrong, or a demanded call does not go with another field.
    """
    dialect = served.llm.tokenizer.tool_dialect if body.tools else None
    toolbox = await read_tools(body.tools, body.tool_choice, body.parallel_tool_calls, dialect)
    if toolbox is not None and toolbox.forced and wanted.beams is not None:
        raise InputError(
            "demands a call, which does not go with use_beam_search", field="tool_choice", remedy='Use "auto".'
        )
    return toolbox


async def demanded(served: Served, toolbox: Toolbox | None) -> Grammar | None:
    """What holds an answer to a call, where one is demanded.

    Raises:
        InputError: the schema of a tool cannot be enforced; names its keyword.
    """
    if toolbox is None or not toolbox.forced:
        return None
    return await compiled(served, forced_form(toolbox), "tools")


def shown_ids(served: Served, toolbox: Toolbox | None) -> frozenset[int]:
    """The special token that announces calls, if it is one: it must be seen."""
    if toolbox is None or not toolbox.dialect.opening:
        return frozenset()
    token = served.llm.tokenizer.special_id(toolbox.dialect.opening)
    return frozenset() if token is None else frozenset({token})


class ToolAnswers:
    """Reads the choices of one answer, whole or event by event.

    Attributes:
        errors: for the block ``samebits``: choices that announced calls and hold none, and why.
    """

    def __init__(self, job: Job, toolbox: Toolbox) -> None:
        self._prompt = ids_digest(job.prompts)
        self._readers = [ToolReader(toolbox) for _ in range(job.choices)]
        self._spoken = [False] * job.choices
        self._errors: dict[int, str] = {}

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [{"choice": index, "message": self._errors[index]} for index in sorted(self._errors)]

    def message(self, index: int, completion: Completion) -> tuple[dict[str, Any], str]:
        """What a choice says and calls, and its finish_reason."""
        shown = self._readers[index].push(completion.text)
        ending, reason = self._end(index, completion)
        text = shown + ending.text
        if not ending.calls:
            return {"content": text}, reason
        return {"content": text or None, "tool_calls": self._shaped(index, ending)}, reason

    def deltas(self, index: int, event: Event) -> tuple[list[dict[str, Any]], str | None]:
        """The parts of the message that an event brings, and the finish_reason if it is the last.

        A call comes whole, in one part: until its end nobody knows whether it is one.
        """
        text = self._readers[index].push(event.text)
        ending, reason = (None, None) if event.completion is None else self._end(index, event.completion)
        if ending is not None:
            text += ending.text
        deltas: list[dict[str, Any]] = []
        if text or (ending is not None and not ending.calls and not self._spoken[index]):
            deltas.append({"content": text})
            self._spoken[index] = True
        if ending is not None:
            deltas += [{"tool_calls": [{"index": i} | call]} for i, call in enumerate(self._shaped(index, ending))]
        return deltas, reason

    def _end(self, index: int, completion: Completion) -> tuple[Ending, str]:
        ending = self._readers[index].finish(completion.finish_reason)
        if ending.error is not None:
            self._errors[index] = ending.error
        return ending, TOOL_CALLS if ending.calls else completion.finish_reason

    def _shaped(self, index: int, ending: Ending) -> list[dict[str, Any]]:
        return [
            {
                "id": call_id(self._prompt, index, place, call),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(ending.calls)
        ]
