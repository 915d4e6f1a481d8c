"""The answer to a /v1/responses request, whole or as events."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from samebits.api.job import Job, now
from samebits.api.logprobs import chat_entry
from samebits.api.output_format import judge
from samebits.api.promise import ids_digest
from samebits.api.schema_responses import ResponseRequest
from samebits.api.tool_reader import Ending, ToolReader
from samebits.api.tools import Call, Toolbox, call_id
from samebits.engine import Completion, Event, TopLogprob
from samebits.engine.driver import Arrival
from samebits.structured import StructuredSpec

Object = dict[str, Any]


class ResponseAnswer:
    """Builds one answer: an item for the text, if there is any or nothing else, then one for each call."""

    def __init__(self, job: Job, body: ResponseRequest, toolbox: Toolbox | None, spec: StructuredSpec | None) -> None:
        self._job, self._body, self._spec = job, body, spec
        self._toolbox = toolbox
        self._reader = None if toolbox is None else ToolReader(toolbox)
        self._hex = uuid.uuid4().hex
        self._created = now()
        self._text: str | None = None  # of the item that is open
        self._logprobs: list[Object] = []

    # ---- whole -------------------------------------------------------------------------------------------------------

    def whole(self, completions: Sequence[Completion]) -> Object:
        """The body of a response that is not streamed."""
        [completion] = completions
        judge(completion, self._spec)
        text = completion.text if self._reader is None else self._reader.push(completion.text)
        ending = self._ending(completion)
        text += ending.text
        if self._body.include:
            assert completion.logprobs is not None
            assert completion.top_logprobs is not None
            rows = zip(completion.token_ids, completion.logprobs.tolist(), completion.top_logprobs, strict=True)
            self._logprobs = [self._entry(*row) for row in rows]
        output = []
        if text or not ending.calls:
            output.append(self._message(text, _status(completion)))
        output += [self._call(place, call) for place, call in enumerate(ending.calls)]
        return self._response(output, completion, ending)

    def _ending(self, completion: Completion) -> Ending:
        return Ending("") if self._reader is None else self._reader.finish(completion.finish_reason)

    def _entry(self, token: int, logprob: float, top: Sequence[TopLogprob]) -> Object:
        entry = chat_entry(self._job.served.llm.tokenizer, token, logprob, top)
        for part in (entry, *entry["top_logprobs"]):
            part["bytes"] = part["bytes"] or []  # this route's clients want a list, also for a special token
        return entry

    def _message(self, text: str, status: str) -> Object:
        content = [] if status == "in_progress" else [self._part(text, self._logprobs)]
        return {"id": f"msg_{self._hex}", "type": "message", "status": status, "role": "assistant", "content": content}

    def _part(self, text: str, logprobs: list[Object]) -> Object:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _call(self, place: int, call: Call, *, begun: bool = False) -> Object:
        return {
            "id": f"fc_{self._hex}_{place}",
            "type": "function_call",
            "status": "in_progress" if begun else "completed",
            "call_id": call_id(ids_digest(self._job.prompts), 0, place, call),
            "name": call.name,
            "arguments": "" if begun else call.arguments,
        }

    def _response(self, output: list[Object], completion: Completion | None, ending: Ending | None) -> Object:
        body, params = self._body, self._job.params
        status = "in_progress" if completion is None else _status(completion)
        response: Object = {
            "id": f"resp_{self._hex}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": params.max_tokens,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": output,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "prompt_cache_key": body.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": body.safety_identifier,
            "service_tier": "default",
            "store": False,
            "system_fingerprint": self._job.served.fingerprint,
            "temperature": params.temperature,
            "text": {"format": _as_sent(_format(body))},
            "tool_choice": _choice(body),
            "tools": [_as_sent(tool.sent) for tool in body.tools or ()],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": body.user,
        }
        if completion is not None and ending is not None:
            block = self._job.block([completion])
            if self._toolbox is not None:
                block["tool_errors"] = [] if ending.error is None else [{"choice": 0, "message": ending.error}]
            response |= {"usage": self._usage(completion), "samebits": block}
        return response

    def _usage(self, completion: Completion) -> Object:
        usage = self._job.usage([completion])
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": completion.cached_prompt_tokens},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }

    # ---- as events ---------------------------------------------------------------------------------------------------

    def opening(self) -> list[Object]:
        """The response before its first token."""
        begun = self._response([], None, None)
        return [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]

    def of(self, arrival: Arrival, completions: list[Completion] | None) -> list[Object]:
        """What an event of the engine brings; with the last one everything is closed."""
        event = arrival.event
        text = event.text if self._reader is None else self._reader.push(event.text)
        completion = event.completion
        if completion is None:
            return self._said(text, event)
        judge(completion, self._spec)
        ending = self._ending(completion)
        events = self._said(text + ending.text, event)
        if self._text is None and not ending.calls:
            events += self._opened()
        output: list[Object] = []
        if self._text is not None:
            output.append(self._message(self._text, _status(completion)))
            events += self._closed(output[0])
        for place, call in enumerate(ending.calls):
            events += self._called(place, call, len(output))
            output.append(self._call(place, call))
        end = self._response(output, completion, ending)
        return [*events, {"type": f"response.{end['status']}", "response": end}]

    def closing(self, completions: list[Completion]) -> list[Object]:
        """Nothing: the last event of the engine closes everything."""
        return []

    def _place(self) -> Object:
        return {"item_id": f"msg_{self._hex}", "output_index": 0, "content_index": 0}

    def _said(self, text: str, event: Event) -> list[Object]:
        logprobs = []
        if self._body.include and event.token_id is not None and event.logprob is not None:
            logprobs = [self._entry(event.token_id, event.logprob, event.top_logprobs)]
        if not text and not logprobs:
            return []
        events = [] if self._text is not None else self._opened()
        self._text = (self._text or "") + text
        self._logprobs += logprobs
        delta = {"type": "response.output_text.delta"} | self._place()
        return [*events, delta | {"delta": text, "logprobs": logprobs}]

    def _opened(self) -> list[Object]:
        self._text = ""
        return [
            {"type": "response.output_item.added", "output_index": 0, "item": self._message("", "in_progress")},
            {"type": "response.content_part.added"} | self._place() | {"part": self._part("", [])},
        ]

    def _closed(self, item: Object) -> list[Object]:
        [part] = item["content"]
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        return [
            {"type": "response.output_text.done"} | self._place() | done,
            {"type": "response.content_part.done"} | self._place() | {"part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ]

    def _called(self, place: int, call: Call, index: int) -> list[Object]:
        """A call comes whole: until the answer's end nobody knows whether it is one."""
        item = self._call(place, call)
        where = {"item_id": item["id"], "output_index": index}
        kind = "response.function_call_arguments"
        return [
            {"type": "response.output_item.added", "output_index": index, "item": self._call(place, call, begun=True)},
            {"type": f"{kind}.delta"} | where | {"delta": call.arguments},
            {"type": f"{kind}.done"} | where | {"name": call.name, "arguments": call.arguments},
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]


def _status(completion: Completion) -> str:
    return "incomplete" if completion.finish_reason == "length" else "completed"


def _format(body: ResponseRequest) -> Mapping[str, Any]:
    if body.text is None or body.text.format is None:
        return {"type": "text"}
    return body.text.format.model_dump(by_alias=True, exclude_none=True)


def _choice(body: ResponseRequest) -> Any:
    if body.tool_choice is None:
        return "auto"
    return body.tool_choice if isinstance(body.tool_choice, str) else body.tool_choice.model_dump()


def _as_sent(value: Mapping[str, Any]) -> orjson.Fragment:
    """What a client sent, with integers of any size."""
    return orjson.Fragment(json.dumps(value, allow_nan=False).encode())
