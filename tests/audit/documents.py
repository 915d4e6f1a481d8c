"""Result documents of simulated targets with known faults; texts that try to break out of a report."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from samebits.audit.carry_out import Measured
from samebits.audit.observation import Observation
from samebits.audit.plan import Experiment, Plan
from samebits.audit.prompts import Prompt
from samebits.audit.report.document import Document, document_of, parse_document
from samebits.audit.result import evaluate
from samebits.audit.run import Progress
from samebits.audit.stub import Design, Fault, StubModel, simulate

# What names may hold; answers may hold a lone surrogate, too.
NAME = "<script>alert('x')</script> & \"'|`*_[a](http://b) \u202etxt\x1b[31m\x00\ufffe </pre>\n# b\n```\n--> ]]>"
HOSTILE = NAME + "\ud800"
LEVELS = {"concurrency": ("1", "8"), "load": ("off", "on"), "time": ("0", "1")}
PROMPTS = 6


def observations_of(name: str, fault: Fault, *, hostile: bool = False, failing: bool = False) -> list[Observation]:
    """The runs of a simulated target: with best tokens, and with a failed run and texts that break out if wanted."""
    found = []
    design = Design(prompts=PROMPTS, runs=4, levels=LEVELS)
    for i, o in enumerate(simulate(StubModel(fault, 1), design, target=name)):
        assert o.tokens is not None
        assert o.logprobs is not None
        best = tuple(((token, score), ("zz", score - 1.5)) for token, score in zip(o.tokens, o.logprobs, strict=True))
        o = replace(o, top_logprobs=best)
        if hostile:
            tokens = (HOSTILE, *o.tokens[1:])
            o = replace(o, tokens=tokens, text="".join(tokens), prompt_id=o.prompt_id + NAME, fingerprint=HOSTILE)
        if failing and i % 40 == 7:
            bare = {"text": None, "token_ids": None, "tokens": None, "logprobs": None, "top_logprobs": None}
            o = replace(o, **bare, error=f"HTTP 500 {HOSTILE if hostile else 'gone'}", correct=None, answer=None)  # type: ignore[arg-type]
        found.append(o)
    return found


def prompts_of(observations: Sequence[Observation]) -> tuple[Prompt, ...]:
    """Prompts with the ids of the observations."""
    ids = sorted({o.prompt_id for o in observations})
    return tuple(Prompt(id=i, messages=({"role": "user", "content": f"Say {i}"},)) for i in ids)


def raw_document(
    runs: Sequence[Sequence[Observation]], *, fail_under: float | None = None, said: str = "gone"
) -> dict[str, Any]:
    """The document of these targets, of JSON's types."""
    prompts = prompts_of(runs[0])
    plan = Plan(Experiment(runs=8, concurrency=(1, 8), load=("off", "on")), prompts)
    measured, results = [], []
    for observations in runs:
        result = evaluate(observations, prompts)
        errors = {error: said for error, _ in result.metrics.errors}
        known = {"model": said, "accepted": ["logprobs"], "server": {"version": said}}
        measured.append(Measured(observations[0].target, known, {"seed": said}, Progress(details=errors)))
        results.append(result)
    command = f"samebits audit targets.yaml {said}"
    raw = document_of(plan, measured, results, command=command, journal="night.jsonl", fail_under=fail_under)
    found: dict[str, Any] = json.loads(json.dumps(raw | {"created": 1_800_000_000.0}))
    return found


@cache
def flaky_text() -> str:
    """Of a target that flips one in five texts under load, as JSON."""
    runs = observations_of("flaky", Fault(cause="load", rate=0.2, variants=3), failing=True)
    return json.dumps(raw_document([runs], fail_under=1.0))


@cache
def several_text() -> str:
    """Of three targets: flaky, steady, and steady in text alone, as JSON."""
    faults = (Fault(cause="load", rate=0.2, variants=3), Fault(), Fault(rate=0.1, part="logprobs"))
    names = ("flaky", "steady", "bits")
    return json.dumps(raw_document([observations_of(*pair) for pair in zip(names, faults, strict=True)]))


@cache
def hostile_text() -> str:
    """Of a target whose every text tries to break out, as JSON."""
    runs = observations_of(f"evil {HOSTILE}", Fault(rate=0.2, variants=3), hostile=True, failing=True)
    return json.dumps(raw_document([runs], fail_under=0.5, said=HOSTILE))


def document(text: str) -> Document:
    return parse_document(json.loads(text))


TEXTS = {"flaky": flaky_text, "several": several_text, "hostile": hostile_text}


def many_runs(runs: int) -> list[Observation]:
    """A prompt with many runs, one of which is another, and one of which failed."""
    texts = itertools.chain(["b"], itertools.repeat("a", runs - 2))
    found = [Observation(target="t", prompt_id="p", run=i, text=text) for i, text in enumerate(texts)]
    return [*found, Observation(target="t", prompt_id="p", run=runs - 1, error="gone")]
