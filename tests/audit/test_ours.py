"""Our own engine under the audit, in process and behind its server: nothing differs, and every factor is met."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from audits import Audited, audited_as_planned
from live import NAME, live

from samebits import LLM
from samebits.audit.plan import Experiment, Plan
from samebits.audit.prompts import Prompt
from samebits.audit.result import evaluate, verdict
from samebits.audit.targets import HttpSpec, ModelSpec, TargetSpec
from small_model import write_model

# The small model has a token a byte and a context of 512; the first prompt is cut into chunks of 64.
PROMPTS = tuple(
    Prompt(id=f"p{i}", messages=({"role": "user", "content": text},))
    for i, text in enumerate(
        ("A rather long question about the sea, the wind and ships. " * 4, "Hi", "Count to 9", "Why?")
    )
)
SETTINGS = {"runs": 4, "times": 1, "orders": 2, "max_tokens": 6, "top_logprobs": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


def audit(spec: TargetSpec, path: Path, experiment: Experiment, prompts: Sequence[Prompt] = PROMPTS) -> Audited:
    return audited_as_planned(spec, path, Plan(experiment, tuple(prompts)))


def test_the_engine_repeats_itself_in_every_bit(folder: str, tmp_path: Path) -> None:
    experiment = Experiment(
        **SETTINGS, concurrency=(1, 8), load=("off", "on"), prefix=("cold", "warm"), streaming=("off", "on")
    )
    spec = ModelSpec(name="ours", path=folder, chunk=64)
    observations = audit(spec, tmp_path / "j", experiment).observations
    result = evaluate(observations)
    for view in ("body", "text", "token_ids", "logprobs"):
        assert result.metrics.view(view).verdict == "equal", view  # type: ignore[arg-type]
    assert result.repeat_rate == 1
    assert result.chunked.shown, "no prompt was cut: the case was not met"
    assert result.seeds.forwarding == "forwarded"
    text = result.attributions[0]
    for factor in ("concurrency", "load", "prefix", "streaming"):
        assert text.factor(factor).status == "no effect seen", text.factor(factor)
    assert verdict(result)[0].startswith("No difference seen")


def test_negative_control_without_a_seed_the_same_audit_finds_differences(folder: str, tmp_path: Path) -> None:
    experiment = Experiment(**SETTINGS, concurrency=(4,), temperature=1.0, seeds=("fixed", "none"))
    observations = audit(ModelSpec(name="ours", path=folder), tmp_path / "j", experiment).observations
    result = evaluate(observations)
    assert result.repeat_rate == 1, "seeded runs repeat"
    assert result.seeds.unseeded_varies is True
    unseeded = {o.text for o in observations if o.level("seed") == "none" and o.prompt_id == "p1"}
    assert len(unseeded) > 1


def test_the_server_repeats_itself_and_tells_its_seeds(folder: str, tmp_path: Path) -> None:
    with LLM(folder, chunk=64) as llm, live({NAME: llm}) as server:
        experiment = Experiment(
            **SETTINGS, concurrency=(1, 4), prefix=("cold", "warm"), streaming=("off", "on"), temperature=0.8
        )
        ran = audit(HttpSpec(name="ours", url=server.url), tmp_path / "j", experiment)
        fingerprint = llm.fingerprint
    measured, observations = ran.measured, ran.observations
    result = evaluate(observations)
    assert measured.notes == {}, "our own server takes everything that is asked"
    assert measured.known["model"] == NAME
    for view in ("body", "text", "token_ids", "logprobs"):
        assert result.metrics.view(view).verdict == "equal", view  # type: ignore[arg-type]
    assert result.seeds.forwarding == "forwarded"
    assert result.chunked.shown, "no prompt was cut, or the server does not tell"
    assert [use.fingerprint for use in result.metrics.fingerprints] == [fingerprint]
    assert {o.evidence.cached_tokens for o in observations if o.level("prefix") == "warm"} != {0}
    assert not any(o.failed for o in observations)


def test_a_prompt_that_does_not_fit_is_a_failed_run(folder: str, tmp_path: Path) -> None:
    too_long = Prompt(id="long", messages=({"role": "user", "content": "x" * 600},))
    experiment = Experiment(**SETTINGS, concurrency=(1,))
    spec = ModelSpec(name="ours", path=folder)
    observations = audit(spec, tmp_path / "j", experiment, [PROMPTS[1], too_long]).observations
    failed = {o.prompt_id: o.error for o in observations if o.failed}
    assert failed == {"long": "ContextLengthError"}
    assert evaluate(observations).repeat_rate == 0.5


def test_a_run_whose_logits_overflow_is_a_failed_run_with_its_time(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    weights = load_file(Path(folder) / "model.safetensors")
    weights["model.norm.weight"][:] = 3e38
    save_file(weights, Path(folder) / "model.safetensors")
    spec = ModelSpec(name="ours", path=folder)
    observations = audit(spec, tmp_path / "j", Experiment(**SETTINGS, concurrency=(1,)), PROMPTS[1:2]).observations
    assert {o.error for o in observations} == {"NumericsError"}
    assert all(o.timing is not None and o.timing.total_s > 0 for o in observations)
