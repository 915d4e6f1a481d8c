"""A model in the engine of samebits, in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from samebits.audit.targets.spec import ModelSpec
from samebits.audit.targets.target import Ask, Flight, Reply
from samebits.engine import Completion, Request
from samebits.engine.driver import Driver
from samebits.errors import SamebitsError
from samebits.llm import LLM
from samebits.numerics import digest_json

MOST_CHOICES = 4096  # more than any plan has in flight


class EmbeddedTarget:
    """A model of our own. See ``Target``."""

    def __init__(self, spec: ModelSpec) -> None:
        self.notes: dict[str, str] = {}
        self._spec = spec
        self._llm: LLM | None = None
        self._driver: Driver | None = None

    async def open(self, probes: tuple[Ask, ...], known: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """See ``Target.open``. Nothing needs to be probed."""
        del known
        spec = self._spec
        self._llm = await asyncio.to_thread(
            LLM,
            spec.path,
            spec.profile,
            threads=spec.threads,
            max_batch=spec.max_batch,
            chunk=spec.chunk,
            prefix_cache=spec.prefix_cache,
        )
        if any(probe.schema is not None for probe in probes):
            self.notes["response_format"] = "schemas are not enforced in process; answers are only judged by them"
        self._driver = Driver(self._llm.engine, MOST_CHOICES)
        self._driver.start()
        return {"model": spec.path, "profile": spec.profile, "fingerprint": self._llm.fingerprint}

    async def ask(self, ask: Ask, flight: Flight) -> Reply:
        """See ``Target.ask``."""
        assert self._llm is not None, "the target is not open"
        assert self._driver is not None
        started = time.perf_counter()
        first: float | None = None
        events = 0
        try:
            request = Request(tuple(self._llm.encode_prompt(ask.messages)), self._llm.resolve(_params(ask)).params)
            with flight:
                submission = self._driver.submit([request])
                completion: Completion | None = None
                while completion is None:
                    for arrival in await submission.arrivals():
                        if first is None:
                            first = time.perf_counter() - started
                        events += bool(arrival.event.text)
                        completion = arrival.event.completion
            if completion.error is not None:
                raise completion.error
        except SamebitsError as error:
            return Reply(error=type(error).__name__, detail=str(error), total_s=time.perf_counter() - started)
        reply = self._reply(ask, request, completion)
        if ask.stream:
            reply = replace(reply, first_token_s=first, stream_events=events)
        return replace(reply, total_s=time.perf_counter() - started)

    def _reply(self, ask: Ask, request: Request, completion: Completion) -> Reply:
        """What an answer holds, but for its times and events."""
        assert self._llm is not None
        logprobs = None if completion.logprobs is None else tuple(map(float, completion.logprobs))
        best = None
        if completion.top_logprobs is not None and ask.top_logprobs:
            best = tuple(
                tuple((self._text(t.token_id), float(t.logprob)) for t in tokens) for tokens in completion.top_logprobs
            )
        body = {
            "text": completion.text,
            "token_ids": completion.token_ids,
            "logprobs": logprobs,
            "finish_reason": completion.finish_reason,
            "fingerprint": self._llm.fingerprint,
        }
        return Reply(
            text=completion.text,
            token_ids=completion.token_ids,
            tokens=tuple(map(self._text, completion.token_ids)),
            logprobs=logprobs,
            top_logprobs=best,
            finish_reason=completion.finish_reason,
            fingerprint=self._llm.fingerprint,
            body=digest_json(body),
            prompt_tokens=len(request.prompt_token_ids),
            cached_tokens=completion.cached_prompt_tokens,
            completion_tokens=len(completion.token_ids),
            prefill_chunks=completion.prefill_chunks,
            seed_sent=ask.seed,
            seed_echoed=completion.seed,
        )

    def _text(self, token_id: int) -> str:
        assert self._llm is not None
        return self._llm.tokenizer.token_bytes(token_id).decode("utf-8", "replace")

    async def forget_prefixes(self) -> bool:
        """See ``Target.forget_prefixes``."""
        assert self._driver is not None, "the target is not open"
        await self._driver.flush()
        return True

    async def close(self) -> None:
        """See ``Target.close``."""
        if self._driver is not None:
            await self._driver.close()
        if self._llm is not None:
            self._llm.close()


def _params(ask: Ask) -> dict[str, Any]:
    wanted = {
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "seed": ask.seed,
        "logprobs": ask.top_logprobs,
    }
    return {name: value for name, value in wanted.items() if value is not None}
