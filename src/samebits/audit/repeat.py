"""One prompt, many times, each run among a random, changing load of other requests."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from samebits.audit.divergence import common_prefix
from samebits.audit.load import Arrivals, plan_load
from samebits.engine import Completion, Engine, Request, SamplingParams
from samebits.errors import ContextLengthError, MeasurementError, ModelError
from samebits.llm import LLM

MAX_BATCH = 32


@dataclass(frozen=True)
class Row:
    """What a mode showed.

    Attributes:
        mode: for people.
        profile: ``vendor`` or a samebits profile.
        completions: runs of the prompt.
        unique: different token sequences among them.
        modal_share: share of the most common one.
        first_divergence: first token index at which two runs differ; None when all are equal.
        max_logprob_diff: largest difference of a token's log-probability from that of the first run, over the tokens
            on which both agree.
        logprob_variants: different log-probability sequences, compared bit by bit; 1 is bit-equal.
        smallest_batch, largest_batch: sequences in the steps that a run of the prompt shared.
        tokens_per_s: all tokens generated, load included, per second.
        relative_speed: tokens_per_s over that of the vendor row.
    """

    mode: str
    profile: str
    completions: int
    unique: int
    modal_share: float
    first_divergence: int | None
    max_logprob_diff: float
    logprob_variants: int
    smallest_batch: int
    largest_batch: int
    tokens_per_s: float
    relative_speed: float

    @property
    def reproducible(self) -> bool:
        """One text, and the same bits in every log-probability."""
        return self.unique == 1 and self.logprob_variants == 1


def mode_name(profile: str) -> str:
    """A mode's name for people."""
    return "vendor bf16" if profile == "vendor" else f"samebits {profile}"


def measure_mode(
    model: str,
    profile: str,
    *,
    prompt: str,
    runs: int,
    max_tokens: int,
    threads: int | None,
    baseline: Row | None,
    advance: Callable[[], None],
) -> Row:
    """Runs the prompt ``runs`` times in one mode.

    Raises:
        InputError: the model or a parameter is wrong, or the prompt and max_tokens do not fit the model's context.
        MeasurementError: the load never changed the batch, so nothing was shown.
    """
    with LLM(model, profile, threads=threads, max_batch=MAX_BATCH) as llm:
        messages = [{"role": "user", "content": prompt}]
        ids = tuple(llm.encode_prompt(messages))
        asked = Request(ids, SamplingParams(max_tokens=max_tokens, temperature=0, logprobs=0))
        try:
            llm.engine.check(asked)  # what cannot run is refused before anything has
        except ContextLengthError as error:
            if error.field != "prompt":
                raise
            raise ModelError(
                f"has too short a context for the measured prompt: {error.message}",
                field="model",
                remedy="Give a model with a longer context.",
            ) from error
        plan = plan_load(runs, max_tokens, llm.config.vocab_size, llm.config.context_length)
        seen = drive(llm.engine, asked, plan, advance)
    if len(seen.batches) < 2:
        raise MeasurementError(f"not exercised: every step had {sorted(seen.batches)} sequences; run more completions")
    return _row(profile, seen, baseline)


@dataclass(frozen=True)
class Seen:
    """What came of a plan.

    Attributes:
        completions: the runs of the measured prompt, in the order in which they ended.
        batches: how many sequences the steps had that added to one of them.
        tokens_per_s: all tokens, those of other requests included.
    """

    completions: list[Completion]
    batches: frozenset[int]
    tokens_per_s: float


def drive(engine: Engine, asked: Request, plan: Sequence[Arrivals], advance: Callable[[], None]) -> Seen:
    """Adds what the plan says before each step, until every run of ``asked`` has ended.

    Raises:
        SamebitsError: a request failed.
    """
    runs = sum(arrivals.asked for arrivals in plan)
    ours: set[int] = set()
    done: list[Completion] = []
    batches: set[int] = set()
    tokens, count = 0, engine.stats.batch_sizes
    begin = time.perf_counter()
    for arrivals in itertools.chain(plan, itertools.repeat(Arrivals())):
        for request in arrivals.others:
            engine.add(request)
        ours.update(engine.add(asked) for _ in range(arrivals.asked))
        before = dict(count)
        events = engine.step()
        if any(event.request_id in ours for event in events):
            batches.update(size for size, times in count.items() if times != before.get(size, 0))
        for event in events:
            tokens += event.token_id is not None
            if event.completion is None:
                continue
            if event.completion.error is not None:
                raise event.completion.error
            if event.request_id in ours:
                done.append(event.completion)
                advance()
        if len(done) == runs:
            break
    return Seen(done, frozenset(batches), tokens / (time.perf_counter() - begin))


def _row(profile: str, seen: Seen, baseline: Row | None) -> Row:
    done = seen.completions
    texts = Counter(c.token_ids for c in done)
    scores = [c.logprobs for c in done if c.logprobs is not None]
    first_divergence: int | None = None
    spread = 0.0
    reference, reference_scores = done[0].token_ids, scores[0]
    for completion, own in zip(done, scores, strict=True):
        agree = common_prefix(reference, completion.token_ids)
        if completion.token_ids != reference:
            first_divergence = agree if first_divergence is None else min(first_divergence, agree)
        if agree:
            spread = max(spread, float(np.abs(own[:agree] - reference_scores[:agree]).max()))
    return Row(
        mode=mode_name(profile),
        profile=profile,
        completions=len(done),
        unique=len(texts),
        modal_share=texts.most_common(1)[0][1] / len(done),
        first_divergence=first_divergence,
        max_logprob_diff=spread,
        logprob_variants=len({s.tobytes() for s in scores}),
        smallest_batch=min(seen.batches),
        largest_batch=max(seen.batches),
        tokens_per_s=seen.tokens_per_s,
        relative_speed=1.0 if baseline is None else seen.tokens_per_s / baseline.tokens_per_s,
    )
