"""POST /generate and /flush_cache, as far as SGLang's determinism test needs them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response

from samebits.api.document import answers
from samebits.api.encode import encode_text
from samebits.api.errors import json_response
from samebits.api.job import Job, finished
from samebits.api.prepare import Wanted, given, prepare_job
from samebits.api.schema_answers import Flushed, NativeAnswer
from samebits.api.schema_native import GenerateRequest, NativeSampling
from samebits.api.served import Served
from samebits.api.service import service_of
from samebits.api.stream import EventStream
from samebits.api.strict_route import StrictRoute
from samebits.engine import Completion, Event, PromptScores, TopLogprob
from samebits.engine.driver import Arrival
from samebits.errors import InputError

router = APIRouter(route_class=StrictRoute)
DEFAULT_MAX_NEW_TOKENS: Final = 128  # SGLang's


@router.post("/generate", responses=answers(NativeAnswer | list[NativeAnswer], streams=True))
async def generate(request: Request, body: GenerateRequest) -> Response:
    """Continues one prompt, or a list of prompts with a list of answers."""
    service = service_of(request)
    served = service.model(body.model) if body.model is not None else service.only_model()
    prompts = await _prompts(served, body)
    job = prepare_job(
        service,
        served,
        prompts,
        Wanted(
            explicit=_explicit(
                body.sampling_params or NativeSampling(),
                body.top_logprobs_num or 0,
                score_prompt=_start_of(body, prompts) is not None,
            ),
            max_tokens=DEFAULT_MAX_NEW_TOKENS,
            determinism=body.determinism,
        ),
    )
    answer = GeneratedAnswer(job, body)
    if body.stream:
        return EventStream(job, answer)
    results = answer.whole(await finished(job, request.receive))
    return json_response(results if answer.listed else results[0])


@router.post("/flush_cache", responses=answers(Flushed))
async def flush_cache(request: Request, timeout: float | None = None) -> Response:
    """Forgets all cached prefixes that no running request uses. ``timeout`` has no effect: nothing is waited for."""
    del timeout
    pages = [await served.driver.flush() for served in service_of(request).models.values()]
    return json_response({"pages": sum(pages)})


async def _prompts(served: Served, body: GenerateRequest) -> list[Sequence[int]]:
    if (body.text is None) == (body.input_ids is None):
        raise InputError("or input_ids is needed, and not both", field="text", remedy="Give one of the two.")
    if body.input_ids is not None:
        many: list[Any] = list(body.input_ids)
        return many if isinstance(many[0], list) else [many]
    texts = [body.text] if isinstance(body.text, str) else body.text or []
    return [await encode_text(served.llm, text, add_special=True, field="text") for text in texts]


def _start_of(body: GenerateRequest, prompts: Sequence[Sequence[int]]) -> int | None:
    """The position from which on a prompt's log-probabilities are wanted; None: nowhere."""
    start = body.logprob_start_len
    if start is None or start == -1:
        return None
    if not body.return_logprob:
        raise InputError("needs return_logprob", field="logprob_start_len", remedy="Set that to true.")
    shortest = min(map(len, prompts))
    if start >= shortest:
        raise InputError(
            f"{start} is no position in a prompt of {shortest} tokens",
            field="logprob_start_len",
            remedy=f"Give 0 to {shortest - 1}, or -1.",
        )
    return start


def _explicit(params: NativeSampling, top: int, *, score_prompt: bool) -> dict[str, Any]:
    names = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "n")
    values = {name: getattr(params, name) for name in (*names, "stop", "stop_token_ids", "ignore_eos")}
    top_k = 0 if params.top_k == -1 else params.top_k
    return given(
        values | {"top_k": top_k, "max_tokens": params.max_new_tokens, "seed": params.sampling_seed},
        logprobs=top,
        prompt_logprobs=top if score_prompt else None,
    )


class GeneratedAnswer:
    """The answer to a request of /generate, whole or in events that each hold all of it so far.

    Attributes:
        listed: whether it is a list; in a stream each event then has its index.
    """

    def __init__(self, job: Job, body: GenerateRequest) -> None:
        self._job, self._body = job, body
        self._tokenizer = job.served.llm.tokenizer
        several = isinstance(body.text, list) or bool(body.input_ids and isinstance(body.input_ids[0], list))
        self.listed = several or job.choices > 1
        named = body.rid is not None and job.choices == 1
        self._names = [body.rid if named else uuid.uuid4().hex for _ in range(job.choices)]
        self._so_far = [_SoFar() for _ in range(job.choices)]
        self._written: dict[int, dict[str, orjson.Fragment]] = {}  # by prompt

    def whole(self, completions: Sequence[Completion]) -> list[dict[str, Any]]:
        """One answer for each choice."""
        return [self._finished(index, completion) for index, completion in enumerate(completions)]

    def opening(self) -> list[dict[str, Any]]:
        """Nothing."""
        return []

    def of(self, arrival: Arrival, completions: list[Completion] | None) -> list[dict[str, Any]]:
        """The answer of a choice after one more token."""
        del completions
        event, index = arrival.event, self._job.choice(arrival)
        so_far = self._so_far[index]
        so_far.add(event)
        if event.completion is not None:
            answer = self._finished(index, event.completion)
        else:
            scores = (so_far.prompt_scores, so_far.logprobs, so_far.tops)
            answer = self._answer(index, so_far.text, so_far.token_ids, *scores)
        return [answer | {"index": index} if self.listed else answer]

    def closing(self, completions: list[Completion]) -> list[dict[str, Any]]:
        """Nothing."""
        del completions
        return []

    def _finished(self, index: int, completion: Completion) -> dict[str, Any]:
        assert completion.logprobs is not None
        scores = (completion.prompt_scores, completion.logprobs.tolist(), completion.top_logprobs or ())
        answer = self._answer(index, completion.text, completion.token_ids, *scores)
        answer["meta_info"] |= {
            "finish_reason": _finish_reason(completion),
            "cached_tokens": completion.cached_prompt_tokens,
            "samebits": self._job.block([completion], [self._prompt(index)]),
        }
        return answer

    def _answer(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        prompt_scores: PromptScores | None,
        logprobs: Sequence[float],
        tops: Sequence[Sequence[TopLogprob]],
    ) -> dict[str, Any]:
        prompt, body = self._prompt(index), self._body
        meta: dict[str, Any] = {
            "id": self._names[index],
            "finish_reason": None,
            "prompt_tokens": len(prompt),
            "completion_tokens": len(token_ids),
        }
        if body.return_logprob:
            meta["output_token_logprobs"] = self._pairs(logprobs, token_ids)
            if body.top_logprobs_num:
                meta["output_top_logprobs"] = self._tops(tops)
            if prompt_scores is not None:
                meta |= self._of_prompt(index, prompt_scores)
        return {"text": text, "output_ids": list(token_ids), "meta_info": meta}

    def _of_prompt(self, index: int, scores: PromptScores) -> dict[str, orjson.Fragment]:
        """What is said of a prompt, written once: every event of a stream repeats it."""
        at, start = index // self._job.params.n, self._body.logprob_start_len
        if at not in self._written:
            lists: dict[str, list[Any]] = {
                "input_token_logprobs": self._pairs([None, *scores.logprobs], self._prompt(index))[start:]
            }
            if self._body.top_logprobs_num:
                lists["input_top_logprobs"] = [None, *self._tops(scores.top_logprobs)][start:]
            self._written[at] = {name: orjson.Fragment(orjson.dumps(values)) for name, values in lists.items()}
        return self._written[at]

    def _prompt(self, index: int) -> tuple[int, ...]:
        return self._job.prompts[index // self._job.params.n]

    def _pairs(self, logprobs: Sequence[float | None], token_ids: Sequence[int]) -> list[list[Any]]:
        return [[logprob, i, self._text(i)] for logprob, i in zip(logprobs, token_ids, strict=True)]

    def _tops(self, tops: Sequence[Sequence[TopLogprob]]) -> list[list[list[Any]]]:
        return [[[t.logprob, t.token_id, self._text(t.token_id)] for t in top] for top in tops]

    def _text(self, token_id: int) -> str | None:
        if not self._body.return_text_in_logprobs:
            return None
        return self._tokenizer.token_bytes(token_id).decode("utf-8", "replace")


class _SoFar:
    """What has come of one choice."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.tops: list[tuple[TopLogprob, ...]] = []
        self.prompt_scores: PromptScores | None = None

    def add(self, event: Event) -> None:
        self.text += event.text
        self.prompt_scores = event.prompt_scores or self.prompt_scores
        if event.token_id is not None and event.logprob is not None:
            self.token_ids.append(event.token_id)
            self.logprobs.append(event.logprob)
            self.tops.append(event.top_logprobs)


def _finish_reason(completion: Completion) -> dict[str, Any]:
    if completion.finish_reason == "length":
        return {"type": "length", "length": len(completion.token_ids)}
    return {"type": "stop", "matched": completion.stop_reason}
