"""POST /v1/completions: OpenAI's legacy route, which takes texts and token ids."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from samebits.api.beams import beam_fields
from samebits.api.document import answers
from samebits.api.encode import encode_text
from samebits.api.errors import json_response
from samebits.api.job import Job, finished, now
from samebits.api.logprobs import LegacyLogprobs, join
from samebits.api.output_format import check_form, compiled, form_of, judge
from samebits.api.prepare import prepare_job, wanted_of
from samebits.api.schema_answers import TextCompletion
from samebits.api.schema_completions import CompletionRequest
from samebits.api.served import Served
from samebits.api.service import service_of
from samebits.api.stream import EventStream
from samebits.api.strict_route import StrictRoute
from samebits.engine import Completion, PromptScores
from samebits.engine.driver import Arrival
from samebits.structured import StructuredSpec

router = APIRouter(route_class=StrictRoute)
DEFAULT_MAX_TOKENS: Final = 16  # OpenAI's


@router.post("/v1/completions", responses=answers(TextCompletion, streams=True))
async def create_completion(request: Request, body: CompletionRequest) -> Response:
    """Continues one prompt or several."""
    service = service_of(request)
    served = service.model(body.model)
    prompts = [await _encode(served, prompt, body) for prompt in _split(body.prompt)]
    wanted = wanted_of(
        body,
        max_tokens=body.max_tokens,
        default=DEFAULT_MAX_TOKENS,
        top_logprobs=body.logprobs,
        prompt_logprobs=body.logprobs if body.echo else None,
    )
    form = form_of(body)
    check_form(form, tools=False, beams=wanted.beams is not None)
    grammar = None if form is None else await compiled(served, form.spec, form.field)
    job = prepare_job(service, served, prompts, wanted, grammar=grammar)
    answer = CompletionAnswer(job, body, None if form is None else form.spec)
    if body.stream:
        return EventStream(job, answer)
    return json_response(answer.whole(await finished(job, request.receive)))


def _split(prompt: str | list[str] | list[int] | list[list[int]]) -> Sequence[str | list[int]]:
    """One prompt or several, as a list of prompts."""
    if isinstance(prompt, str):
        return [prompt]
    many: list[Any] = list(prompt)
    return [many] if isinstance(many[0], int) else many


async def _encode(served: Served, prompt: str | list[int], body: CompletionRequest) -> list[int]:
    if isinstance(prompt, str):
        return await encode_text(served.llm, prompt, add_special=body.add_special_tokens is not False)
    return prompt


class CompletionAnswer:
    """The answer to a completion request, whole or in chunks."""

    def __init__(self, job: Job, body: CompletionRequest, spec: StructuredSpec | None) -> None:
        self._job, self._body, self._spec = job, body, spec
        self._tokenizer = job.served.llm.tokenizer
        self._usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        self._echoed = [self._tokenizer.decode(ids) if body.echo else "" for ids in job.prompts]
        self._entries = [LegacyLogprobs(self._tokenizer, len(self._echo(i))) for i in range(job.choices)]
        self._common = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": now(),
            "model": body.model,
            "system_fingerprint": job.served.fingerprint,
        }

    def _echo(self, index: int) -> str:
        return self._echoed[index // self._job.params.n]

    def whole(self, completions: list[Completion]) -> dict[str, Any]:
        """The body of a response that is not streamed.

        Raises:
            OutputInvalid: a choice is not of the form that was asked for.
        """
        choices = []
        for index, completion in enumerate(completions):
            judge(completion, self._spec)
            choice = {
                "index": index,
                "text": self._echo(index) + completion.text,
                "logprobs": self._logprobs(index, completion),
                "finish_reason": completion.finish_reason,
            }
            choice |= beam_fields(completion)
            if self._body.return_token_ids:
                choice |= self._prompt(index) | {"token_ids": list(completion.token_ids)}
            choices.append(choice)
        return self._common | {
            "choices": choices,
            "usage": self._job.usage(completions),
            "samebits": self._job.block(completions),
        }

    def _prompt(self, index: int) -> dict[str, Any]:
        return {"prompt_token_ids": list(self._job.prompts[index // self._job.params.n])}

    def _logprobs(self, index: int, completion: Completion) -> dict[str, Any] | None:
        if self._body.logprobs is None:
            return None
        assert completion.logprobs is not None
        assert completion.top_logprobs is not None
        rows = zip(completion.token_ids, completion.logprobs.tolist(), completion.top_logprobs, strict=True)
        entries = [self._entries[index].entry(*row) for row in rows]
        return join([*self._echoed_entries(index, completion.prompt_scores), *entries])

    def _echoed_entries(self, index: int, scores: PromptScores | None) -> list[dict[str, list[Any]]]:
        """Those of an echoed prompt; nothing comes before its first token, which so has no log-probability."""
        if scores is None:
            return []
        ids = self._job.prompts[index // self._job.params.n]
        own = LegacyLogprobs(self._tokenizer, 0)
        rows = zip(ids, [None, *scores.logprobs], [None, *scores.top_logprobs], strict=True)
        return [own.entry(*row) for row in rows]

    # ---- in chunks ---------------------------------------------------------------------------------------------------

    def opening(self) -> list[dict[str, Any]]:
        """The prompts, if they are to be echoed or their ids returned. One with log-probabilities is echoed when these
        are known.
        """
        echoed = self._body.echo and self._body.logprobs is None
        if not (echoed or self._body.return_token_ids):
            return []
        chunks = [self._chunk(index, self._echo(index) if echoed else "") for index in range(self._job.choices)]
        if self._body.return_token_ids:
            for index, chunk in enumerate(chunks):
                chunk["choices"][0] |= self._prompt(index) | {"token_ids": []}
        return chunks

    def of(self, arrival: Arrival, completions: list[Completion] | None) -> list[dict[str, Any]]:
        """The text of one event, and the end of its choice."""
        event, index = arrival.event, self._job.choice(arrival)
        opening = []
        if event.prompt_scores is not None:
            opening = [self._chunk(index, self._echo(index))]
            opening[0]["choices"][0]["logprobs"] = join(self._echoed_entries(index, event.prompt_scores))
        chunk = self._chunk(index, event.text)
        choice = chunk["choices"][0]
        reported = False
        if event.token_id is not None:
            if self._body.logprobs is not None and event.logprob is not None:
                choice["logprobs"] = self._entries[index].entry(event.token_id, event.logprob, event.top_logprobs)
                reported = True
            if self._body.return_token_ids:
                choice["token_ids"] = [event.token_id]
                reported = True
        if event.completion is not None:
            judge(event.completion, self._spec)
            choice["finish_reason"] = event.completion.finish_reason
            if completions is not None:
                chunk["samebits"] = self._job.block(completions)
            reported = True
        return [*opening, chunk] if event.text or reported else opening

    def closing(self, completions: list[Completion]) -> list[dict[str, Any]]:
        """The usage, if it was asked for."""
        return [self._common | {"choices": [], "usage": self._job.usage(completions)}] if self._usage else []

    def _chunk(self, index: int, text: str) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "text": text, "logprobs": None, "finish_reason": None}
        chunk = self._common | {"choices": [choice]}
        return chunk | {"usage": None} if self._usage else chunk
