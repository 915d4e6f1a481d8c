"""A request of any route on its way through the engine: prepared, submitted, and waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from starlette.types import Receive

from samebits.api.beams import Beams
from samebits.api.errors import ClientGoneError, DeadlineError
from samebits.api.metrics import Metrics
from samebits.api.promise import ids_digest, logprobs_digest
from samebits.api.served import Served
from samebits.engine import BeamSearch, Completion, Request, SamplingParams
from samebits.engine.driver import Arrival, Submission
from samebits.engine.params import draw_seed
from samebits.engine.resolve import describe
from samebits.errors import InputError, NumericsError, SamebitsError
from samebits.gateway.levels import Level
from samebits.models.tokenizer import TextStream
from samebits.structured import Grammar


@dataclass(frozen=True)
class Job:
    """Prompts and parameters of one HTTP request.

    Attributes:
        prompts: token ids; each is continued ``params.n`` times.
        params: in full, and always with log-probabilities, since their digest is part of every answer.
        origins: where each parameter came from: ``request``, ``route``, ``samebits``, or the model's file and key.
        timeout: seconds until it is given up.
        beams: the search that makes the choices, instead of sampling.
        rendered_sha256: digest of the text that the chat template made; None where the prompts are no conversation.
        grammar: what each choice must be.
        shown: special tokens that are text in this answer.
    """

    served: Served
    prompts: tuple[tuple[int, ...], ...]
    params: SamplingParams
    origins: Mapping[str, str]
    level: Level
    timeout: float
    metrics: Metrics
    beams: Beams | None = None
    rendered_sha256: str | None = None
    grammar: Grammar | None = None
    shown: frozenset[int] = frozenset()

    @cached_property
    def choices(self) -> int:
        """Choices of all prompts."""
        return len(self.prompts) * self.params.n

    def choice(self, arrival: Arrival) -> int:
        """The index of an event's choice in the response: by prompt, then by choice."""
        return arrival.request * self.params.n + arrival.event.index

    def submit(self, *, whole: bool = False) -> Submission:
        """Hands the prompts to the engine.

        Args:
            whole: the answer is not streamed.

        Raises:
            SamebitsError: see ``Driver.submit``.
        """
        driver = self.served.driver
        if self.beams is not None:
            params = self.beams.params(self.params)
            return driver.submit([BeamSearch(driver.engine, ids, params, self._decode) for ids in self.prompts])
        sampling = self.params
        if sampling.seed is None and sampling.temperature > 0 and len(self.prompts) > 1:
            sampling = replace(sampling, seed=draw_seed())  # one for all, so that it can be asked again with it
        constraint = None if self.grammar is None else self.grammar.constraint()
        return driver.submit(
            [
                Request(ids, sampling, origins=self.origins, new_stream=self._new_stream, constraint=constraint)
                for ids in self.prompts
            ],
            whole=whole,
        )

    def _new_stream(self) -> TextStream:
        return self.served.llm.tokenizer.stream(self.shown)

    def _decode(self, ids: Sequence[int]) -> str:
        stream = self._new_stream()
        return "".join(map(stream.push, ids)) + stream.finish()

    def usage(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """OpenAI's count of tokens. A prompt counts once, however many choices continue it."""
        prompt = sum(map(len, self.prompts))
        output = sum(len(c.token_ids) for c in completions)
        cached = sum(c.cached_prompt_tokens for c in completions if c.index == 0)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def block(
        self, completions: Sequence[Completion], prompts: Sequence[Sequence[int]] | None = None
    ) -> dict[str, Any]:
        """The block ``samebits`` of a response (docs/guide/server.md).

        Args:
            completions: the choices that it covers, in the order of the response.
            prompts: theirs; all when not given.
        """
        own = self.prompts if prompts is None else prompts
        return {
            "level": self.level,
            "fingerprint": self.served.fingerprint,
            "receipt_id": None,
            "seed": completions[0].seed,
            "params": self._described,
            "form_sha256": None if self.grammar is None else self.grammar.digest,
            "rendered_prompt_sha256": self.rendered_sha256,
            "prompt_tokens_sha256": ids_digest(own),
            "output_tokens_sha256": ids_digest([c.token_ids for c in completions]),
            "logprobs_sha256": logprobs_digest(completions),
            "cached_prompt_tokens": sum(c.cached_prompt_tokens for c in completions if c.index == 0),
            "prefill_chunks": max(c.prefill_chunks for c in completions),
            "warnings": list(self.warnings),
        }

    @cached_property
    def _described(self) -> dict[str, dict[str, Any]]:
        described = describe(self.params, self.origins)
        for name in ("logprobs", "prompt_logprobs"):
            del described[name]  # these ask how to answer, not what
        return described if self.beams is None else described | self.beams.described()

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is suspicious about the prompts."""
        check = self.served.llm.tokenizer.prompt_warnings
        return tuple(dict.fromkeys(warning for ids in self.prompts for warning in check(ids)))

    def blame(self, error: SamebitsError) -> SamebitsError:
        """The error of a choice, as the caller's own where the caller's penalties may have caused it."""
        p = self.params
        adjusts = p.logit_bias or p.repetition_penalty != 1 or p.presence_penalty or p.frequency_penalty
        if isinstance(error, NumericsError) and adjusts:
            return InputError(
                f"with it, {error}", field="repetition_penalty", remedy="Use penalties nearer to their defaults."
            )
        return error


class Transcript:
    """The finished choices of a job, as they come. Tells the metrics of the first token and of the end."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._start: float | None = time.perf_counter()
        self._done: dict[int, Completion] = {}

    def add(self, arrival: Arrival) -> None:
        """Notes an event.

        Raises:
            SamebitsError: it says that its choice failed; the answer as a whole fails with it.
        """
        if self._start is not None:
            self._job.metrics.first_token(self._job.served.name, time.perf_counter() - self._start)
            self._start = None
        completion = arrival.event.completion
        if completion is None:
            return
        if completion.error is not None:
            raise self._job.blame(completion.error)
        self._done[self._job.choice(arrival)] = completion
        if self.complete:
            self._job.metrics.finished(self._job.served.name, self._job.prompts, self.completions)

    @property
    def complete(self) -> bool:
        """Whether every choice has ended."""
        return len(self._done) == self._job.choices

    @property
    def completions(self) -> list[Completion]:
        """The finished choices in the order of the response."""
        return [self._done[index] for index in sorted(self._done)]


async def finished(job: Job, receive: Receive) -> list[Completion]:
    """Runs a job to its end, and gives it up when the client goes away.

    Raises:
        SamebitsError: it was refused or failed.
        DeadlineError: it took too long.
        ClientGoneError: the client closed the connection.
    """
    submission = job.submit(whole=True)
    work = asyncio.create_task(_collect(job, submission))
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((work, gone), timeout=job.timeout, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientGoneError("the client closed the connection") if gone.done() else deadline_error(job)
    finally:
        submission.cancel()
        work.cancel()
        gone.cancel()


async def _collect(job: Job, submission: Submission) -> list[Completion]:
    transcript = Transcript(job)
    while not transcript.complete:
        for arrival in await submission.arrivals():
            transcript.add(arrival)
    return transcript.completions


async def disconnected(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def deadline_error(job: Job) -> DeadlineError:
    """What a job that takes too long ends with."""
    return DeadlineError(f"the answer was not complete after {job.timeout:g} s; ask for fewer tokens")


def now() -> int:
    """Seconds since 1970, for ``created``."""
    return int(time.time())
