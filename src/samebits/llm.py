"""The Python API: a model, ready to answer with the same bits every time."""

from __future__ import annotations

import datetime
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from samebits import kernels
from samebits.engine import (
    BeamCompletion,
    BeamParams,
    BeamSearch,
    Completion,
    Effective,
    Engine,
    Event,
    Limits,
    ModelLimits,
    Request,
    SamplingParams,
    resolve,
    run_searches,
)
from samebits.engine.params import check_integer
from samebits.errors import EngineFailedError, InputError, ModelError, OutputInvalid, shown
from samebits.inputs import (
    PROMPT_REMEDY,
    Prompt,
    is_conversation,
    is_ids,
    split_params,
    split_prompts,
    split_structured,
)
from samebits.models.batch import Batch
from samebits.models.chat_template import DEFAULT_DATE
from samebits.models.decoder import Decoder
from samebits.models.load import load_source
from samebits.numerics import PROFILES, VERSION, digest_json
from samebits.structured import GrammarCompiler, StructuredSpec, Vocabulary, validate

DEFAULT_KV_MEMORY = 512 << 20


class LLM:
    """A model in memory with an engine around it.

    Threads, instruction set, batch, chunk, page size, KV memory and prefix cache change speed and memory, never a bit.

    One call of ``generate``, ``beam_search`` or ``logits`` at a time: a second one, of another thread or of a callback,
    is refused, as it is while the engine has requests of others.

    Args:
        model: a GGUF file, a Hugging Face folder, or ``smollm2``.
        profile: ``fp32``, ``bf16`` or ``int8`` (docs/numerics.md 2). ``vendor`` uses numpy's BLAS and promises nothing;
            it is there to be compared with.
        threads: default one per usable CPU.
        isa: one of ``samebits.kernels.available_isas()``; default the fastest.
        max_batch: most sequences computed at once.
        chunk: most tokens computed in one step.
        page_size: tokens in a KV page, a power of two from 1 to 256.
        kv_memory: bytes for keys and values; default 512 MiB, or less when the model cannot use it.
        prefix_cache: reuse keys and values of equal prefixes.

    Attributes:
        generation_defaults: sampling defaults that the model brings along.

    Keys of these that have no effect here, and a context that is limited by a sliding window, are announced by a
    ``UserWarning``.

    Raises:
        InputError: a value is wrong (ModelError for the model itself).
    """

    def __init__(
        self,
        model: str,
        profile: str = "bf16",
        *,
        threads: int | None = None,
        isa: str | None = None,
        max_batch: int = 32,
        chunk: int = 512,
        page_size: int = 16,
        kv_memory: int | None = None,
        prefix_cache: bool = True,
    ) -> None:
        profiles = (*PROFILES, "vendor")
        if not isinstance(profile, str) or profile not in profiles:
            raise InputError(
                f"{shown(profile)} is unknown", field="profile", remedy=f"Choose one of: {', '.join(profiles)}."
            )
        check_integer("max_batch", max_batch, 1, 4096)
        check_integer("chunk", chunk, 1, 1 << 20)
        check_integer("page_size", page_size, 1, 256)
        if page_size & (page_size - 1):
            raise InputError(f"{page_size} is not a power of two", field="page_size", remedy="Use 1, 2, 4 … 256.")
        if not isinstance(prefix_cache, bool):
            raise InputError(f"{shown(prefix_cache)} is not a bool", field="prefix_cache", remedy="Give True or False.")
        memory = DEFAULT_KV_MEMORY if kv_memory is None else kv_memory
        check_integer("kv_memory", memory, 1, 1 << 50)
        self.profile = profile
        self._limits = Limits(max_batch, chunk, page_size)
        self._lock, self._process = threading.Lock(), os.getpid()
        self._ctx = kernels.Context(threads, isa)
        self._source = load_source(model)
        self.tokenizer = self._source.tokenizer
        self.config = self._source.config
        try:
            self._decoder = Decoder(self._source, self._ctx, profile)
        except MemoryError as error:
            raise ModelError(
                f"its weights as {profile} are more than the memory that can be had",
                field="model",
                remedy="Use a profile of fewer bytes a weight, or a smaller model.",
            ) from error
        cache = self._new_cache(memory)
        self.generation_defaults = self._source.generation_defaults
        if self.config.context_limit_reason is not None:
            warnings.warn(self.config.context_limit_reason, stacklevel=2)
        if self.generation_defaults.ignored:
            names = ", ".join(self.generation_defaults.ignored)
            warnings.warn(f"the model's generation defaults hold what has no effect here: {names}", stacklevel=2)
        self._eos_ids = tuple(sorted({*self.tokenizer.eos_ids, *self.generation_defaults.eos_ids}))
        self.engine = Engine(
            self._decoder,
            cache,
            self._ctx,
            ModelLimits(
                vocab_size=self.config.vocab_size,
                context_length=self.config.context_length,
                eos_token_ids=self._eos_ids,
            ),
            self._limits,
            self.tokenizer.stream,
            prefix_cache=prefix_cache,
        )

    def _new_cache(self, memory: int) -> kernels.KvCache:
        """As many pages as so many bytes hold and the model can use."""
        size, page_bytes = self._limits.page_size, self._decoder.cache_bytes(self._limits.page_size)
        useful = self._limits.max_batch * self._limits.pages_for(self.config.context_length)
        pages = min(memory // page_bytes, useful)
        if pages == 0:
            raise InputError(
                f"{memory} bytes hold no page of {size} tokens",
                field="kv_memory",
                remedy=f"Give at least {page_bytes} bytes.",
            )
        try:
            return self._decoder.new_cache(pages, size)
        except MemoryError as error:
            raise InputError(
                f"{pages * page_bytes} bytes are more than can be had", field="kv_memory", remedy="Give less."
            ) from error

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        date: datetime.date = DEFAULT_DATE,
        structured: StructuredSpec | Sequence[StructuredSpec | None] | None = None,
        on_event: Callable[[int, Event], None] | None = None,
    ) -> list[Completion]:
        """Continues one prompt or many.

        Args:
            prompts: a text, a conversation (list of ``{"role", "content"}``), a list of token ids, or a list of those.
            params: for all prompts, or one for each. What is not given comes from the model's generation defaults, else
                from samebits: greedy, 256 tokens. The completions say what was used, and where it came from.
            date: today's date for chat templates that ask for it; pinned, so that an answer does not change overnight.
            structured: what each output is to look like: one for all prompts, or one (or None) for each.
            on_event: called with the prompt's index for each new token.

        Returns:
            All choices, in the order of prompts, then of choices. One that failed alone has ``finish_reason`` "error",
            and so has one that ended without being what ``structured`` asks for (its text is left as it is). One that
            was cut at ``max_tokens`` has ``length`` and is not judged.

        Raises:
            InputError: a prompt, parameter or structure is wrong, or another request runs; nothing was generated.
            EngineFailedError: the model is closed, or belongs to the process that this one was forked from.
        """
        if on_event is not None and not callable(on_event):
            raise InputError(f"{shown(on_event)} cannot be called", field="on_event", remedy="Give a function.")
        with self._alone("generate"):
            return self._generate(prompts, params, date, structured, on_event)

    def _generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        date: datetime.date,
        structured: StructuredSpec | Sequence[StructuredSpec | None] | None,
        on_event: Callable[[int, Event], None] | None,
    ) -> list[Completion]:
        many = split_prompts(prompts)
        each = [self.resolve(p.explicit) for p in split_params(params, len(many))]
        specs = split_structured(structured, len(many))
        requests = [
            Request(
                tuple(self.encode_prompt(prompt, date=date)),
                e.params,
                e.origins,
                constraint=None if spec is None else self.grammars.compile(spec).constraint(),
            )
            for prompt, e, spec in zip(many, each, specs, strict=True)
        ]
        order: dict[int, int] = {}
        done: dict[tuple[int, int], Completion] = {}
        try:
            for i, request in enumerate(requests):
                order[self.engine.add(request)] = i
            while self.engine.busy:
                for event in self.engine.step():
                    index = order[event.request_id]
                    event = _judged(event, specs[index])
                    if on_event is not None:
                        on_event(index, event)
                    if event.completion is not None:
                        done[index, event.index] = event.completion
        finally:
            for request_id in order:
                self.engine.cancel(request_id)
        return [done[key] for key in sorted(done)]

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        width: int,
        max_tokens: int | None = 256,
        *,
        n: int = 1,
        length_penalty: float = 1.0,
        date: datetime.date = DEFAULT_DATE,
    ) -> list[BeamCompletion]:
        """The n best of the hypotheses that a beam search finds for each prompt (docs/numerics.md 4.3).

        Args:
            prompts, date: as for ``generate``.
            width: beams kept, 1 to 16.
            max_tokens: longest hypothesis; None means up to the context's end.
            n: hypotheses to return, 1 to width.
            length_penalty: α, −2 to 2; 0 orders hypotheses by their sum of log-probabilities, 1 by the mean.

        Returns:
            In the order of prompts, then best first. One that failed alone gives n with ``finish_reason`` "error".

        Raises:
            InputError: a prompt or parameter is wrong, or another request runs; nothing was computed.
            CapacityError: one beam could never fit the KV memory.
            EngineFailedError: as for ``generate``.
        """
        params = BeamParams(width=width, n=n, max_tokens=max_tokens, length_penalty=length_penalty)
        with self._alone("beam_search"):
            searches = [
                BeamSearch(self.engine, self.encode_prompt(prompt, date=date), params, self.tokenizer.decode)
                for prompt in split_prompts(prompts)
            ]
            run_searches(self.engine, searches)
        return [completion for search in searches for completion in search.completions()]

    def resolve(self, explicit: Mapping[str, Any]) -> Effective:
        """The parameters of a request in full: those given, else the model's defaults, else those of samebits.

        Args:
            explicit: what the request gives, by name of ``SamplingParams``; a value given here always wins.

        Raises:
            InputError: an unknown name or wrong value, or a default of the model that is needed and out of range.
        """
        return resolve(explicit, self.generation_defaults.values)

    @cached_property
    def grammars(self) -> GrammarCompiler:
        """Compiles structures for this model. To drive the engine yourself, give a request its grammar's constraint."""
        return GrammarCompiler(Vocabulary.of(self.tokenizer, self.config.vocab_size, self._eos_ids))

    @contextmanager
    def _alone(self, call: str, *, idle: bool = True) -> Iterator[None]:
        """Holds the model for one call, which it does not wait for.

        Args:
            call: its name, for messages.
            idle: the engine must have no requests: their events would be taken for those of the call.
        """
        self._check_usable()
        if not self._lock.acquire(blocking=False):
            raise _another_runs(call)
        try:
            self._check_usable()  # it may have been closed since
            if idle and self.engine.busy:
                raise _another_runs(call)
            yield
        finally:
            self._lock.release()

    def _check_open(self) -> None:
        if "engine" not in self.__dict__:
            raise EngineFailedError("the model is closed; load it again")

    def _check_usable(self) -> None:
        self._check_open()
        if os.getpid() != self._process:  # threads do not survive a fork
            raise EngineFailedError("the model was loaded before this process was forked; load it in this one")

    def encode_prompt(
        self, prompt: Prompt, *, date: datetime.date = DEFAULT_DATE, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Token ids of a prompt: a text gets the model's BOS, a conversation its template, ids stay as they are.

        Args:
            tools: what the model may call, for a conversation; see ``Tokenizer.apply_chat_template``.

        Raises:
            InputError: malformed, or no tokens result.
        """
        if not isinstance(date, datetime.date):
            raise InputError(f"{shown(date)} is not a date", field="date", remedy="Give a datetime.date.")
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt)
        elif is_ids(prompt):
            ids = [int(i) for i in prompt]
        elif is_conversation(prompt):
            text = self.tokenizer.apply_chat_template(prompt, date=date, tools=tools)
            ids = self.tokenizer.encode(text, add_special=False)
        else:
            raise InputError("is not a prompt", field="prompt", remedy=PROMPT_REMEDY)
        if not ids:
            raise InputError(
                "has no tokens: it is empty and the model adds none", field="prompt", remedy="Give a non-empty prompt."
            )
        return ids

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits (T, V) float32 after each of T token ids, computed in one pass outside the engine.

        Raises:
            InputError: no ids, ids outside the vocabulary, or more than the context holds; or another request runs.
            EngineFailedError: as for ``generate``.
        """
        if not is_ids(token_ids):
            raise InputError(f"{shown(token_ids)} are not ids", field="token_ids", remedy="Give a list of token ids.")
        with self._alone("logits", idle=False):  # it has pages of its own
            return self._logits(self.encode_prompt(token_ids))

    def _logits(self, ids: list[int]) -> npt.NDArray[np.float32]:
        if min(ids) < 0 or max(ids) >= self.config.vocab_size or len(ids) > self.config.context_length:
            raise InputError(
                f"{len(ids)} ids from {shown(min(ids))} to {shown(max(ids))} do not fit",
                field="token_ids",
                remedy=f"Ids go to {self.config.vocab_size - 1}, at most {self.config.context_length} of them.",
            )
        rows, pages = np.arange(len(ids), dtype=np.int32), self._limits.pages_for(len(ids))
        cache = self._decoder.new_cache(pages, self._limits.page_size)
        batch = Batch(
            token_ids=np.asarray(ids, np.int32),
            positions=rows,
            slots=rows.astype(np.int64),
            seq_starts=np.array([0, len(ids)], np.int32),
            block_tables=np.arange(pages, dtype=np.int32)[None],
            logit_rows=rows,
        )
        return self._decoder.forward(batch, cache)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of everything that can move a bit (docs/numerics.md 7). For the vendor profile it promises nothing."""
        self._check_open()
        scaling = self.config.rope_scaling
        return digest_json(
            {
                "contract": VERSION,
                "profile": self.profile,
                "weights": self._source.weights_digest,
                "tokenizer": self.tokenizer.digest,
                "chat_template": self.tokenizer.template_digest,
                "generation_defaults": self.generation_defaults.digest,
                "rope": {
                    "theta": self.config.rope_theta,
                    "scaling": None if scaling is None else vars(scaling) | {"factors": list(scaling.factors)},
                },
            }
        )

    @property
    def weights_nbytes(self) -> int:
        """Bytes of the packed matrices."""
        self._check_open()
        return self._decoder.nbytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees weights, cache and threads; the object cannot be used afterwards. Closing again does nothing.

        Raises:
            InputError: a call runs, in another thread or around this one; nothing was freed.
        """
        forked = os.getpid() != self._process  # then the lock is a copy, and who held it is not here
        if not forked and not self._lock.acquire(blocking=False):
            raise _another_runs("close")
        try:
            for name in ("engine", "_decoder", "_source", "_ctx"):
                self.__dict__.pop(name, None)
        finally:
            if not forked:
                self._lock.release()


def _another_runs(call: str) -> InputError:
    return InputError("another request runs", field=call, remedy="Wait for its end, or drive the engine yourself.")


def _judged(event: Event, spec: StructuredSpec | None) -> Event:
    """The event, its completion an error where the output ended and is not what was asked for."""
    completion = event.completion
    if spec is None or completion is None or completion.finish_reason != "stop":
        return event
    try:
        validate(completion.text, spec)
    except OutputInvalid as error:
        return replace(event, completion=replace(completion, finish_reason="error", error=error))
    return event
