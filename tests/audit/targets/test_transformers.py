"""A model in transformers as a target. What needs torch is skipped where it is not installed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "api"))

from live import write_model

from samebits.audit.targets import Ask, Reply, TransformersSpec, open_target
from samebits.audit.targets import transformers as module
from samebits.errors import InputError, ModelError

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
