"""What others have published about the cost of batch invariance, on other machines: not to be compared with ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Published:
    """One figure.

    Attributes:
        what: what was measured, on what.
        figure: as published.
        relative: speed relative to the default of that source.
        source: title, publisher, date.
        url: where it stands.
    """

    what: str
    figure: str
    relative: float
    source: str
    url: str


_HE: Final = "Defeating Nondeterminism in LLM Inference, Thinking Machines Lab, 2025-09-10"
_HE_URL: Final = "https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/"
_WHAT: Final = "vLLM, Qwen3-8B on one GPU, 1,000 sequences of 90 to 110 tokens"
PUBLISHED: Final = (
    Published(f"{_WHAT}: deterministic, not optimised", "55 s, default 26 s", 26 / 55, _HE, _HE_URL),
    Published(f"{_WHAT}: with a better attention kernel", "42 s, default 26 s", 26 / 42, _HE, _HE_URL),
    Published(
        "SGLang with CUDA graphs, deterministic inference",
        "34.35 % slower on average",
        1 / 1.3435,
        "Towards Deterministic Inference in SGLang and Reproducible RL Training, LMSYS, 2025-09-22",
        "https://lmsys.org/blog/2025-09-22-sglang-deterministic",
    ),
    Published(
        "vLLM, Qwen3-1.7B, prompts of 1,024 to 2,048 words, 128 new tokens: VLLM_BATCH_INVARIANT",
        "15,618 tokens/s, default 15,713",
        15617.86 / 15713.46,
        "vllm-project/vllm#28161, 2025-11-05",
        "https://github.com/vllm-project/vllm/pull/28161",
    ),
)
