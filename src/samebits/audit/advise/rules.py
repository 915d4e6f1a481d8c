"""The rules, as data. Each combination of answers meets exactly one; a test walks through all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from samebits.audit.advise.needs import Needs


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        name: of the approach.
        when: question → the answers for which it holds; a question that is not named may have any.
        approach: what to do.
        because: why this and not another.
        level: the level of reproducibility that can be promised (docs/guide/server.md).
        serve: keys of ``samebits serve --config``, below the model's name for those of ``model``; None where samebits
            does not serve the model.
        model: keys of the model in that file.
        targets: entries of a file for ``samebits audit``, where the model is served by others.
        request: sampling parameters to send with each request.
        check: how to see that it holds.
    """

    name: str
    when: Mapping[str, tuple[str, ...]]
    approach: str
    because: str
    level: str
    serve: Mapping[str, Any] | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[Mapping[str, Any], ...] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    check: str = ""

    def holds(self, needs: Needs) -> bool:
        """Whether it is the one for these answers."""
        return all(getattr(needs, question) in answers for question, answers in self.when.items())


GREEDY: Final = {"temperature": 0, "seed": 0}
SEEDED: Final = {"temperature": 0.7, "top_p": 0.95, "seed": "one of your own for each request, kept with the answer"}
PINNED: Final = {"determinism": "portable", "date": "2026-01-01"}
CHECK_OURS: Final = "samebits audit http://127.0.0.1:8000 --load both --prefix both --streaming both --fail-under 1.0"
CHECK_THEIRS: Final = "samebits audit targets.yaml --load both --fail-under 0.99"

RULES: Final[tuple[Rule, ...]] = (
    # ---- on your own CPUs: samebits serves ---------------------------------------------------------------------------
    Rule(
        name="portable, full precision",
        when={"budget": ("cpu",), "regulation": ("audited",), "latency": ("batch",), "creativity": ("none",)},
        approach="Serve with samebits in fp32 and answer greedily; keep fingerprint, prompt and answer of each "
        "request.",
        because="An auditor may have another machine; fp32 loses nothing to rounding of weights, and nobody waits.",
        level="portable",
        serve=PINNED,
        model={"engine": "embedded", "path": "smollm2", "profile": "fp32", "max_batch": 64},
        request=GREEDY,
        check=CHECK_OURS,
    ),
    Rule(
        name="portable",
        when={"budget": ("cpu",), "regulation": ("audited",), "latency": ("interactive",), "creativity": ("none",)},
        approach="Serve with samebits in bf16 and answer greedily; keep fingerprint, prompt and answer of each "
        "request.",
        because="An auditor may have another machine, and somebody waits: bf16 is faster than fp32 and as "
        "reproducible.",
        level="portable",
        serve=PINNED,
        model={"engine": "embedded", "path": "smollm2", "profile": "bf16"},
        request=GREEDY,
        check=CHECK_OURS,
    ),
    Rule(
        name="portable, fast",
        when={
            "budget": ("cpu",),
            "regulation": ("none", "internal"),
            "creativity": ("none",),
            "use_case": ("classification", "extraction"),
        },
        approach="Serve with samebits in int8 and answer greedily; first compare its accuracy with bf16 on your own "
        "data.",
        because="Labels and fields seldom depend on the last digits of weights, and int8 is the fastest profile; its "
        "bits are as reproducible as those of the others.",
        level="portable",
        serve=PINNED,
        model={"engine": "embedded", "path": "smollm2", "profile": "int8"},
        request=GREEDY,
        check=CHECK_OURS,
    ),
    Rule(
        name="portable, for comparisons",
        when={
            "budget": ("cpu",),
            "regulation": ("none", "internal"),
            "creativity": ("none",),
            "use_case": ("evaluation", "assistant", "writing"),
        },
        approach="Serve with samebits in bf16 and answer greedily.",
        because="A difference between two runs is then one of prompt or model, never of load; and bf16 is what most "
        "models were made for.",
        level="portable",
        serve=PINNED,
        model={"engine": "embedded", "path": "smollm2", "profile": "bf16"},
        request=GREEDY,
        check=CHECK_OURS,
    ),
    Rule(
        name="portable, seeded",
        when={"budget": ("cpu",), "creativity": ("some",)},
        approach="Serve with samebits in bf16; sample, with a seed of your own for each request, kept with the answer.",
        because="Answers vary from seed to seed, and each one can be had again: a choice depends on its seed and on "
        "nothing beside it.",
        level="portable",
        serve=PINNED,
        model={"engine": "embedded", "path": "smollm2", "profile": "bf16"},
        request=SEEDED,
        check=f"{CHECK_OURS} --temperature 0.7 --seeded both",
    ),
    # ---- on your own GPUs: others serve, samebits measures -----------------------------------------------------------
    Rule(
        name="batch-invariant server, greedy",
        when={"budget": ("gpu",), "creativity": ("none",)},
        approach="Serve with vLLM in its batch-invariant mode, or SGLang in its deterministic one, on one type of GPU "
        "with pinned versions; answer greedily.",
        because="samebits has no GPU kernels yet. These modes fix the order of sums for one GPU type and version, so "
        "an answer can be had again there, and not elsewhere.",
        level="batch",
        targets=({"target": "http://127.0.0.1:8000", "name": "gpu-server"},),
        request=GREEDY,
        check=CHECK_THEIRS,
    ),
    Rule(
        name="batch-invariant server, seeded",
        when={"budget": ("gpu",), "creativity": ("some",)},
        approach="Serve with vLLM in its batch-invariant mode, or SGLang in its deterministic one, on one type of GPU "
        "with pinned versions; send a seed of your own with each request, and keep it.",
        because="samebits has no GPU kernels yet. A seed there is worth what the server makes of it: audit that it is "
        "used, and that a neighbour without one does not disturb it.",
        level="batch",
        targets=({"target": "http://127.0.0.1:8000", "name": "gpu-server"},),
        request=SEEDED,
        check=f"{CHECK_THEIRS} --temperature 0.7 --seeded both",
    ),
    # ---- a hosted service --------------------------------------------------------------------------------------------
    Rule(
        name="hosted, with the answer on record",
        when={"budget": ("hosted",), "regulation": ("audited",)},
        approach="Keep each request and answer in full: the service cannot give it again. Name a dated model, not an "
        "alias. If the same answer must be had again, plan for a model on your own CPUs.",
        because="A service shares its batches with strangers and changes when it likes; seed and temperature 0 are "
        "best effort there. The record is the only proof.",
        level="best-effort",
        targets=({"target": "https://api.example.com/v1", "name": "hosted", "model": "MODEL", "key_env": "API_KEY"},),
        request=GREEDY,
        check=CHECK_THEIRS,
    ),
    Rule(
        name="hosted, measured",
        when={"budget": ("hosted",), "regulation": ("none", "internal"), "creativity": ("none",)},
        approach="Send temperature 0 and a seed, name a dated model, and measure how often the service repeats itself; "
        "repeat evaluations as often as its spread demands.",
        because="A service shares its batches with strangers: seed and temperature 0 are best effort. A difference "
        "below the measured spread is none.",
        level="best-effort",
        targets=({"target": "https://api.example.com/v1", "name": "hosted", "model": "MODEL", "key_env": "API_KEY"},),
        request=GREEDY,
        check=CHECK_THEIRS,
    ),
    Rule(
        name="hosted, as it comes",
        when={"budget": ("hosted",), "regulation": ("none", "internal"), "creativity": ("some",)},
        approach="Sample as you like, and keep the answers that matter; name a dated model and watch its fingerprint.",
        because="Answers are meant to vary and nobody asks for one again; what remains to be seen is a change of "
        "model.",
        level="none",
        targets=({"target": "https://api.example.com/v1", "name": "hosted", "model": "MODEL", "key_env": "API_KEY"},),
        request={"temperature": 0.7, "top_p": 0.95},
        check="samebits audit targets.yaml --temperature 0.7 --seeded both",
    ),
)
