"""A model in transformers, in this process, used as most scripts use it: requests that wait together are padded on the
left into one batch, and ``generate`` continues them. torch and transformers are imported when the target is opened.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from samebits.audit.targets.spec import TransformersSpec
from samebits.audit.targets.target import Ask, Flight, Reply
from samebits.counted import counted
from samebits.errors import InputError, ModelError
from samebits.numerics import digest_json

PACKAGES = ("torch", "transformers")


@dataclass(frozen=True)
class _Waiting:
    ask: Ask
    ids: tuple[int, ...]
    reply: asyncio.Future[Reply]


class TransformersTarget:
    """A model in transformers. See ``Target``."""

    def __init__(self, spec: TransformersSpec) -> None:
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise InputError(
                f"needs {' and '.join(missing)}", field="target", remedy="Install them: pip install 'samebits[torch]'."
            )
        if not Path(spec.path).exists():
            raise ModelError(f"{spec.path} does not exist", field="target", remedy="Name a folder, or a GGUF file.")
        self.notes: dict[str, str] = {}
        self._spec = spec
        self._thread = ThreadPoolExecutor(1, "samebits-transformers")
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._loop: asyncio.Task[None] | None = None
        self._fingerprint = ""
        self._undo: Callable[[], None] = lambda: None

    async def open(self, probes: tuple[Ask, ...], known: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """See ``Target.open``."""
        del known
        if any(probe.stream for probe in probes):
            raise InputError(
                "transformers answers a batch in one piece", field="streaming", remedy="Leave it off for hf targets."
            )
        if any(probe.schema is not None for probe in probes):
            self.notes["response_format"] = "schemas are not enforced in process; answers are only judged by them"
        if any(probe.seed is not None for probe in probes):
            self.notes["seed"] = "one generator for the whole batch, as transformers has it"
        self.notes["prefix"] = "no prefix cache"
        await asyncio.get_running_loop().run_in_executor(self._thread, self._load)
        self._loop = asyncio.create_task(self._serve())
        return {"model": self._spec.path, "dtype": self._spec.dtype, "fingerprint": self._fingerprint}

    def _load(self) -> None:
        import torch
        import transformers

        path = Path(self._spec.path)
        files: dict[str, Any] = {"gguf_file": path.name} if path.is_file() else {}
        unpacked: dict[str, Any] = {}
        if files and self._spec.unpack and hasattr(transformers, "GgufConfig"):  # releases without it always unpack
            unpacked = {"quantization_config": transformers.GgufConfig(dequantize=True)}
        folder = path.parent if path.is_file() else path
        shows_progress = transformers.utils.logging.is_progress_bar_enabled()
        transformers.utils.logging.disable_progress_bar()
        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, **files)
            self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=getattr(torch, self._spec.dtype), **files, **unpacked
            ).eval()
        except (OSError, ValueError, ImportError) as error:
            raise ModelError(
                f"{path} cannot be loaded: {error}", field="target", remedy="See the message of transformers."
            ) from error
        finally:
            if shows_progress:
                transformers.utils.logging.enable_progress_bar()
        if self._tokenizer.chat_template is None:
            raise ModelError(f"{path} has no chat template", field="target", remedy="Name a model for conversations.")
        if self._spec.deterministic:
            self._undo = _make_deterministic()
        self._fingerprint = digest_json(
            {
                "config": self._model.config.to_json_string(),
                "dtype": self._spec.dtype,
                "deterministic": self._spec.deterministic,
                "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
                "threads": torch.get_num_threads(),
            }
        )

    async def ask(self, ask: Ask, flight: Flight) -> Reply:
        """See ``Target.ask``."""
        started = time.perf_counter()
        try:
            ids = self._encode(ask)
        except Exception as error:  # whatever a template raises
            return Reply(error=type(error).__name__, detail=str(error)[:300])
        context = getattr(self._model.config, "max_position_embeddings", None)
        if context is not None and len(ids) + ask.max_tokens > context:
            detail = f"{counted(len(ids), 'token')} and {ask.max_tokens} new ones do not fit {context}"
            return Reply(error="ContextLengthError", detail=detail)
        waiting = _Waiting(ask, ids, asyncio.get_running_loop().create_future())
        with flight:
            self._queue.put_nowait(waiting)
            reply = await waiting.reply
        return replace(reply, total_s=time.perf_counter() - started)

    def _encode(self, ask: Ask) -> tuple[int, ...]:
        text = self._tokenizer.apply_chat_template(
            [dict(message) for message in ask.messages], add_generation_prompt=True, tokenize=False
        )
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    async def _serve(self) -> None:
        """Takes what waits, as one batch, again and again. A batch has one set of sampling parameters."""
        put_back: list[_Waiting] = []
        loop = asyncio.get_running_loop()
        while True:
            batch = [put_back.pop(0) if put_back else await self._queue.get()]
            await asyncio.sleep(0)  # whoever was woken by the last batch asks now
            candidates = put_back + [self._queue.get_nowait() for _ in range(self._queue.qsize())]
            put_back = []
            for waiting in candidates:
                fits = len(batch) < self._spec.max_batch and _settings(waiting.ask) == _settings(batch[0].ask)
                (batch if fits else put_back).append(waiting)
            try:
                replies: Sequence[Reply] = await loop.run_in_executor(self._thread, self._generate, batch)
            except Exception as error:  # whatever the libraries raise is the batch's failure, and the next one goes on
                replies = [Reply(error=type(error).__name__, detail=str(error)[:300])] * len(batch)
            for waiting, reply in zip(batch, replies, strict=True):
                if not waiting.reply.done():
                    waiting.reply.set_result(reply)

    def _generate(self, batch: Sequence[_Waiting]) -> list[Reply]:
        import torch

        width = max(len(waiting.ids) for waiting in batch)
        ids = torch.zeros((len(batch), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, waiting in enumerate(batch):
            ids[row, width - len(waiting.ids) :] = torch.tensor(waiting.ids)
            mask[row, width - len(waiting.ids) :] = 1
        ask = batch[0].ask
        longest = max(waiting.ask.max_tokens for waiting in batch)
        end = self._model.generation_config.eos_token_id
        ends = set(end if isinstance(end, list) else [] if end is None else [end])
        # The caller's random state is left as it was.
        with torch.random.fork_rng(), torch.inference_mode():
            if ask.seed is None:
                torch.seed()
            else:
                torch.manual_seed(ask.seed % 2**63)
            out = self._model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=longest,
                return_dict_in_generate=True,
                output_logits=True,
                pad_token_id=min(ends, default=0),
                **_options(ask),
            )
        replies = []
        for row, waiting in enumerate(batch):
            tokens = out.sequences[row, width:].tolist()[: waiting.ask.max_tokens]
            stop = next((i for i, token in enumerate(tokens) if token in ends), None)
            tokens = tokens if stop is None else tokens[: stop + 1]
            logits = torch.stack([step[row] for step in out.logits[: len(tokens)]]).float()
            replies.append(self._reply(waiting, tokens, stop is not None, torch.log_softmax(logits, -1)))
        return replies

    def _reply(self, waiting: _Waiting, tokens: list[int], stopped: bool, scores: Any) -> Reply:
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        wanted = waiting.ask.top_logprobs
        logprobs = best = None
        if wanted is not None:
            logprobs = tuple(float(scores[i, token]) for i, token in enumerate(tokens))
        if wanted:
            values, indices = scores.topk(wanted, -1)
            best = tuple(
                tuple((self._tokenizer.decode([i]), x) for i, x in zip(ids, row, strict=True))
                for ids, row in zip(indices.tolist(), values.tolist(), strict=True)
            )
        finish = "stop" if stopped else "length"
        body = {"text": text, "token_ids": tokens, "logprobs": logprobs, "finish_reason": finish}
        return Reply(
            text=text,
            token_ids=tuple(tokens),
            tokens=tuple(self._tokenizer.decode([token]) for token in tokens),
            logprobs=logprobs,
            top_logprobs=best,
            finish_reason=finish,
            fingerprint=self._fingerprint,
            body=digest_json(body),
            prompt_tokens=len(waiting.ids),
            cached_tokens=0,
            completion_tokens=len(tokens),
            prefill_chunks=1,
            seed_sent=waiting.ask.seed,
            seed_echoed=waiting.ask.seed,
        )

    async def forget_prefixes(self) -> bool:
        """See ``Target.forget_prefixes``. There is no prefix cache, so that every prefix is cold."""
        return True

    async def close(self) -> None:
        """See ``Target.close``."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        # In its own thread: the number of threads belongs to the one that asks.
        await asyncio.get_running_loop().run_in_executor(self._thread, self._undo)
        self._thread.shutdown()


def _make_deterministic() -> Callable[[], None]:
    """Sets what torch offers; returns what sets it back."""
    import torch

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)

    def undo() -> None:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.set_num_threads(threads)

    return undo


def _options(ask: Ask) -> dict[str, Any]:
    """Sampling as ``generate`` takes it: the model's own where nothing is asked, no cut-offs beside a temperature."""
    if ask.temperature is None:
        return {} if ask.top_p is None else {"top_p": ask.top_p}
    if ask.temperature == 0:
        return {"do_sample": False}
    return {
        "do_sample": True,
        "temperature": ask.temperature,
        "top_p": 1.0 if ask.top_p is None else ask.top_p,
        "top_k": 0,
    }


def _settings(ask: Ask) -> tuple[object, ...]:
    return ask.temperature, ask.top_p, ask.seed
