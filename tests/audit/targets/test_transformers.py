"""A model in transformers as a target. What needs torch is skipped where it is not installed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "api"))

from samebits.audit.targets import Ask, Reply, TransformersSpec, open_target
from samebits.audit.targets import transformers as module
from samebits.errors import InputError, ModelError
from samebits.models.load import find_smollm2
from small_model import write_model

MISSING = [name for name in module.PACKAGES if importlib.util.find_spec(name) is None]
needs_torch = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (extra 'torch')")


def ask(text: str, **values: object) -> Ask:
    return Ask(messages=({"role": "user", "content": text},), max_tokens=8, seed=3, top_logprobs=2, **values)  # type: ignore[arg-type]


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("no_such_package",))
    with pytest.raises(InputError, match=r"no_such_package.*samebits\[torch\]"):
        open_target(TransformersSpec(name="t", path=str(tmp_path)))


@needs_torch
def test_a_missing_folder_is_named() -> None:
    with pytest.raises(ModelError, match="no-such-folder"):
        open_target(TransformersSpec(name="t", path="no-such-folder"))


@needs_torch
@pytest.mark.peer
def test_requests_that_wait_together_share_a_batch(tmp_path: Path) -> None:
    import torch

    async def main() -> tuple[list[Reply], list[Reply]]:
        target = open_target(TransformersSpec(name="t", path=write_model(tmp_path), dtype="float32"))
        asks = [ask("Hi"), ask("A longer question"), ask("Hi")]
        try:
            await target.open(tuple(asks), None)
            alone = [await target.ask(one, contextlib.nullcontext()) for one in asks]
            together = await asyncio.gather(*(target.ask(one, contextlib.nullcontext()) for one in asks))
        finally:
            await target.close()
        return alone, list(together)

    state = torch.get_rng_state()
    alone, together = asyncio.run(main())
    assert torch.equal(torch.get_rng_state(), state), "the caller's random state was touched"
    assert alone[0].token_ids == alone[2].token_ids
    for reply in (*alone, *together):
        assert reply.error is None
        assert reply.token_ids is not None
        assert reply.logprobs is not None
        assert len(reply.token_ids) == len(reply.logprobs) <= 8
        assert all(x <= 0 for x in reply.logprobs)
    # Float sums of another batch may differ; the words of the prompt may not.
    assert [r.prompt_tokens for r in together] == [r.prompt_tokens for r in alone]


@needs_torch
@pytest.mark.peer
def test_streams_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        target = open_target(TransformersSpec(name="t", path=write_model(tmp_path)))
        try:
            await target.open((ask("Hi", stream=True),), None)
        finally:
            await target.close()

    with pytest.raises(InputError, match="streaming"):
        asyncio.run(main())


@needs_torch
@pytest.mark.peer
def test_sampling_follows_the_seed(tmp_path: Path) -> None:
    async def main() -> list[Reply]:
        target = open_target(TransformersSpec(name="t", path=write_model(tmp_path), dtype="float32"))
        try:
            await target.open((ask("Hi", temperature=1.0),), None)
            asks = [ask("Hi", temperature=1.0), ask("Hi", temperature=1.0), ask("Hi", temperature=1.0)]
            asks[2] = replace(asks[2], seed=4)
            own = ask("Hi", temperature=None)
            return [await target.ask(one, contextlib.nullcontext()) for one in (*asks, own)]
        finally:
            await target.close()

    first, again, other, own = asyncio.run(main())
    assert first.token_ids == again.token_ids
    assert first.token_ids != other.token_ids, "negative control"
    assert own.error is None


@needs_torch
@pytest.mark.peer
def test_what_fails_is_a_reply_and_the_next_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[Reply]:
        target = open_target(TransformersSpec(name="t", path=write_model(tmp_path), dtype="float32"))
        try:
            await target.open((ask("Hi"),), None)
            too_long = await target.ask(ask("x" * 600), contextlib.nullcontext())
            with monkeypatch.context() as broken:
                broken.setattr(module.TransformersTarget, "_generate", lambda self, batch: {}["no such key"])
                failed = await target.ask(ask("Hi"), contextlib.nullcontext())
            with monkeypatch.context() as broken:
                broken.setattr(target._tokenizer, "chat_template", "{{ raise_exception('no such role') }}")  # type: ignore[attr-defined]
                refused = await target.ask(ask("Hi"), contextlib.nullcontext())
            return [too_long, failed, refused, await target.ask(ask("Hi"), contextlib.nullcontext())]
        finally:
            await target.close()

    too_long, failed, refused, good = asyncio.run(main())
    assert (too_long.error, failed.error, good.error) == ("ContextLengthError", "KeyError", None)
    assert refused.detail is not None
    assert "no such role" in refused.detail


@needs_torch
@pytest.mark.peer
def test_a_model_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    settings = Path(write_model(tmp_path)) / "tokenizer_config.json"
    settings.write_text("{}")

    async def main() -> None:
        target = open_target(TransformersSpec(name="t", path=str(tmp_path), dtype="float32"))
        try:
            await target.open((ask("Hi"),), None)
        finally:
            await target.close()

    with pytest.raises(ModelError, match="no chat template"):
        asyncio.run(main())


@needs_torch
@pytest.mark.peer
def test_a_gguf_file_is_audited() -> None:
    try:
        path = find_smollm2()
    except ModelError as error:
        pytest.skip(str(error))

    async def main() -> Reply:
        target = open_target(TransformersSpec(name="t", path=str(path), dtype="float32"))
        try:
            await target.open((ask("Hi"),), None)
            return await target.ask(ask("Name a colour."), contextlib.nullcontext())
        finally:
            await target.close()

    reply = asyncio.run(main())
    assert reply.error is None, reply.detail
    assert reply.text
    assert reply.completion_tokens == len(reply.token_ids or ())


@needs_torch
@pytest.mark.peer
def test_what_is_set_for_determinism_is_set_back(tmp_path: Path) -> None:
    import torch

    def settings() -> tuple[bool, int]:
        return torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()

    async def main() -> tuple[tuple[bool, int], Reply]:
        spec = TransformersSpec(name="t", path=write_model(tmp_path), dtype="float32", deterministic=True)
        target = open_target(spec)
        try:
            await target.open((ask("Hi"),), None)
            during = await asyncio.get_running_loop().run_in_executor(target._thread, settings)  # type: ignore[attr-defined]
            return during, await target.ask(ask("Hi"), contextlib.nullcontext())
        finally:
            await target.close()

    before = settings()
    during, reply = asyncio.run(main())
    assert during == (True, 1)
    assert reply.error is None
    assert settings() == before
