"""POST /generate and /flush_cache, as far as SGLang's determinism test needs them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

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
from samebits.api.validation import StrictRoute
from samebits.engine import Completion
from samebits.errors import InputError

router = APIRouter(route_class=StrictRoute)
DEFAULT_MAX_NEW_TOKENS: Final = 128  # SGLang's


@router.post("/generate", responses=answers(NativeAnswer | list[NativeAnswer]))
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
            explicit=_explicit(body.sampling_params or NativeSampling(), body.top_logprobs_num or 0),
            max_tokens=DEFAULT_MAX_NEW_TOKENS,
            determinism=body.determinism,
        ),
    )
    completions = await finished(job, request.receive)
    results = [_answer(job, body, index, completion) for index, completion in enumerate(completions)]
    single = len(results) == 1 and not _is_list(body)
    return json_response(results[0] if single else results)


@router.post("/flush_cache", responses=answers(Flushed))
async def flush_cache(request: Request, timeout: float | None = None) -> Response:
    """Forgets all cached prefixes that no running request uses. ``timeout`` has no effect: nothing is waited for."""
    del timeout
    pages = [await served.driver.flush() for served in service_of(request).models.values()]
    return json_response({"pages": sum(pages)})


def _is_list(body: GenerateRequest) -> bool:
    return isinstance(body.text, list) or bool(body.input_ids and isinstance(body.input_ids[0], list))


async def _prompts(served: Served, body: GenerateRequest) -> list[Sequence[int]]:
    if (body.text is None) == (body.input_ids is None):
        raise InputError("or input_ids is needed, and not both", field="text", remedy="Give one of the two.")
    if body.input_ids is not None:
        many: list[Any] = list(body.input_ids)
        return many if isinstance(many[0], list) else [many]
    texts = [body.text] if isinstance(body.text, str) else body.text or []
    return [await encode_text(served.llm, text, add_special=True, field="text") for text in texts]


def _explicit(params: NativeSampling, top_logprobs: int) -> dict[str, Any]:
    names = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "n")
    values = {name: getattr(params, name) for name in (*names, "stop", "stop_token_ids", "ignore_eos")}
    top_k = 0 if params.top_k == -1 else params.top_k
    return given(
        values | {"top_k": top_k, "max_tokens": params.max_new_tokens, "seed": params.sampling_seed},
        logprobs=top_logprobs,
    )


def _answer(job: Job, body: GenerateRequest, index: int, completion: Completion) -> dict[str, Any]:
    prompt = job.prompts[index // job.params.n]
    name = body.rid if body.rid is not None and job.choices == 1 else uuid.uuid4().hex
    meta: dict[str, Any] = {
        "id": name,
        "finish_reason": _finish_reason(completion),
        "prompt_tokens": len(prompt),
        "completion_tokens": len(completion.token_ids),
        "cached_tokens": completion.cached_prompt_tokens,
        "samebits": job.block([completion], [prompt]),
    }
    if body.return_logprob:
        assert completion.logprobs is not None
        text = _texts(job, body)
        pairs = zip(completion.logprobs.tolist(), completion.token_ids, strict=True)
        meta["output_token_logprobs"] = [[logprob, i, text(i)] for logprob, i in pairs]
        if body.top_logprobs_num:
            tops = completion.top_logprobs or ()
            meta["output_top_logprobs"] = [[[t.logprob, t.token_id, text(t.token_id)] for t in top] for top in tops]
    return {"text": completion.text, "output_ids": list(completion.token_ids), "meta_info": meta}


def _texts(job: Job, body: GenerateRequest) -> Any:
    tokenizer = job.served.llm.tokenizer
    if body.return_text_in_logprobs:
        return lambda token: tokenizer.token_bytes(token).decode("utf-8", "replace")
    return lambda token: None


def _finish_reason(completion: Completion) -> dict[str, Any]:
    if completion.finish_reason == "length":
        return {"type": "length", "length": len(completion.token_ids)}
    return {"type": "stop", "matched": completion.stop_reason}
