"""POST /v1/chat/completions."""

from __future__ import annotations

import uuid
from typing import Any

from fastapi import APIRouter, Request, Response

from samebits.api.beams import beam_fields
from samebits.api.conversation import conversation
from samebits.api.document import answers
from samebits.api.encode import encode_conversation
from samebits.api.errors import json_response
from samebits.api.job import Job, finished, now
from samebits.api.logprobs import chat_entry
from samebits.api.output_format import check_form, compiled, form_of, judge
from samebits.api.prepare import prepare_job, wanted_of
from samebits.api.schema_answers import ChatCompletion
from samebits.api.schema_chat import ChatRequest
from samebits.api.service import service_of
from samebits.api.stream import EventStream
from samebits.api.strict_route import StrictRoute
from samebits.api.tool_answers import ToolAnswers, demanded, open_toolbox, shown_ids
from samebits.api.tools import Toolbox
from samebits.engine import Completion, Event
from samebits.engine.driver import Arrival
from samebits.errors import InputError
from samebits.structured import StructuredSpec

router = APIRouter(route_class=StrictRoute)


@router.post("/v1/chat/completions", responses=answers(ChatCompletion, streams=True))
async def create_chat_completion(request: Request, body: ChatRequest) -> Response:
    """Continues a conversation."""
    service = service_of(request)
    served = service.model(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        raise InputError("needs logprobs", field="top_logprobs", remedy="Set logprobs to true, or leave it out.")
    wanted = wanted_of(body, max_tokens=_max_tokens(body), default=None, top_logprobs=body.top_logprobs)
    toolbox = await open_toolbox(served, body, wanted)
    form = form_of(body)
    check_form(form, tools=toolbox is not None, beams=wanted.beams is not None)
    prompt = await encode_conversation(
        served.llm,
        conversation(body.messages),
        service.config.date,
        tools=toolbox.sent if toolbox else (),
        beginning=toolbox.beginning if toolbox else "",
    )
    grammar = await demanded(served, toolbox) if form is None else await compiled(served, form.spec, form.field)
    job = prepare_job(
        service,
        served,
        [prompt.ids],
        wanted,
        rendered_sha256=prompt.sha256,
        grammar=grammar,
        shown=shown_ids(served, toolbox),
    )
    answer = ChatAnswer(job, body, toolbox, None if form is None else form.spec)
    if body.stream:
        return EventStream(job, answer)
    return json_response(answer.whole(await finished(job, request.receive)))


def _max_tokens(body: ChatRequest) -> int | None:
    """The limit, under either of its names; both may be given if they agree."""
    older, newer = body.max_tokens, body.max_completion_tokens
    if older is not None and newer is not None and older != newer:
        raise InputError(
            f"{newer} contradicts max_tokens, {older}", field="max_completion_tokens", remedy="Give one of them."
        )
    return older if newer is None else newer


class ChatAnswer:
    """The answer to a chat request, whole or in chunks."""

    def __init__(self, job: Job, body: ChatRequest, toolbox: Toolbox | None, spec: StructuredSpec | None) -> None:
        self._job, self._body, self._spec = job, body, spec
        self._tools = None if toolbox is None else ToolAnswers(job, toolbox)
        self._usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        self._common = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": now(),
            "model": body.model,
            "system_fingerprint": job.served.fingerprint,
        }

    def whole(self, completions: list[Completion]) -> dict[str, Any]:
        """The body of a response that is not streamed.

        Raises:
            OutputInvalid: a choice is not of the form that was asked for.
        """
        choices = []
        for index, completion in enumerate(completions):
            judge(completion, self._spec)
            choice: dict[str, Any] = {
                "index": index,
                "message": {"role": "assistant", "content": completion.text, "refusal": None},
                "logprobs": self._logprobs(completion),
                "finish_reason": completion.finish_reason,
            }
            if self._tools is not None:
                message, choice["finish_reason"] = self._tools.message(index, completion)
                choice["message"] |= message
            choice |= beam_fields(completion)
            if self._body.return_token_ids:
                choice["token_ids"] = list(completion.token_ids)
            choices.append(choice)
        return (
            self._common
            | self._prompt()
            | {
                "choices": choices,
                "usage": self._job.usage(completions),
                "samebits": self._block(completions),
            }
        )

    def _block(self, completions: list[Completion]) -> dict[str, Any]:
        block = self._job.block(completions)
        return block if self._tools is None else block | {"tool_errors": self._tools.errors}

    def _prompt(self) -> dict[str, Any]:
        return {"prompt_token_ids": list(self._job.prompts[0])} if self._body.return_token_ids else {}

    def _logprobs(self, completion: Completion) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        assert completion.logprobs is not None
        assert completion.top_logprobs is not None
        tokenizer = self._job.served.llm.tokenizer
        rows = zip(completion.token_ids, completion.logprobs.tolist(), completion.top_logprobs, strict=True)
        return {"content": [chat_entry(tokenizer, *row) for row in rows], "refusal": None}

    # ---- in chunks ---------------------------------------------------------------------------------------------------

    def opening(self) -> list[dict[str, Any]]:
        """Each choice's role."""
        delta = {"role": "assistant", "content": "" if self._tools is None else None, "refusal": None}
        chunks = [self._chunk(index, delta) for index in range(self._job.choices)]
        chunks[0] |= self._prompt()
        return chunks

    def of(self, arrival: Arrival, completions: list[Completion] | None) -> list[dict[str, Any]]:
        """The text of one event, and the end of its choice."""
        event, index = arrival.event, self._job.choice(arrival)
        if event.completion is not None:
            judge(event.completion, self._spec)
        reason: str | None = None if event.completion is None else event.completion.finish_reason
        deltas: list[dict[str, Any]] = [{"content": event.text}] if event.text else []
        if self._tools is not None:
            deltas, reason = self._tools.deltas(index, event)
        if not deltas and event.token_id is not None and (self._body.logprobs or self._body.return_token_ids):
            deltas = [{}]  # a token without text
        chunks = [self._chunk(index, delta, None if i else event) for i, delta in enumerate(deltas)]
        if reason is not None:
            end = self._chunk(index, {})
            end["choices"][0]["finish_reason"] = reason
            if completions is not None:
                end["samebits"] = self._block(completions)
            chunks.append(end)
        return chunks

    def closing(self, completions: list[Completion]) -> list[dict[str, Any]]:
        """The usage, if it was asked for."""
        return [self._common | {"choices": [], "usage": self._job.usage(completions)}] if self._usage else []

    def _chunk(self, index: int, delta: dict[str, Any], event: Event | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        if event is not None and event.token_id is not None:
            if self._body.logprobs and event.logprob is not None:
                entry = chat_entry(self._job.served.llm.tokenizer, event.token_id, event.logprob, event.top_logprobs)
                choice["logprobs"] = {"content": [entry], "refusal": None}
            if self._body.return_token_ids:
                choice["token_ids"] = [event.token_id]
        chunk = self._common | {"choices": [choice]}
        return chunk | {"usage": None} if self._usage else chunk
