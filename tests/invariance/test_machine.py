"""The bits of an answer against the machine: threads, instruction sets, processes; and the golden digests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samebits import LLM, SamplingParams, kernels
from samebits.numerics import PROFILES, assert_bitwise_equal, digest_array, first_difference

MATRIX = pytest.mark.parametrize("profile", PROFILES)
GOLDEN = Path(__file__).parents[1] / "golden" / "smollm2.json"


@MATRIX
def test_threads(profile: str, real_model: str, prompts: list[list[int]], ask: Any, alone: Any) -> None:
    chosen = [0, 5, 9]
    for threads in (1, 2, 4):
        with LLM(real_model, profile, threads=threads) as llm:
            for i, answer in zip(chosen, ask(llm, [prompts[i] for i in chosen]), strict=True):
                alone(profile)[i].require_same(answer, f"{threads} threads")


@MATRIX
def test_every_instruction_set(profile: str, real_model: str, small_model: str, ask: Any) -> None:
    """All positions of a short prompt on the real model; whole answers, cut into chunks, on the small one."""
    if len(kernels.available_isas()) < 2:
        pytest.skip("this machine has one instruction set, and nothing to compare it with")
    ids, long = [1, 200, 30, 17, 5, 90], list(range(200)) + list(range(100))
    expected: Any = None
    for isa in kernels.available_isas():
        with LLM(real_model, profile, isa=isa) as llm:
            logits = llm.logits(ids)
        with LLM(small_model, profile, isa=isa, chunk=48) as llm:
            answer = ask(llm, [long])[0]
        if expected is None:
            expected = logits, answer
        assert_bitwise_equal(logits, expected[0], isa)
        expected[1].require_same(answer, isa)


def test_control_a_sum_split_by_count_depends_on_the_count() -> None:
    """What threads and vector widths do to an order that is not fixed: the split count follows them."""
    products = np.random.default_rng(2).standard_normal((16, 4096)).astype(np.float32)

    def split(count: int) -> np.ndarray:
        parts = [np.cumsum(part, axis=1)[:, -1] for part in np.split(products, count, axis=1)]  # sums in sequence
        return np.cumsum(parts, axis=0)[-1]

    assert all(first_difference(split(count), split(1)) is not None for count in (2, 4, 16))


ASK_AGAIN = """
import json, sys
from samebits import LLM, SamplingParams
with LLM(sys.argv[1], sys.argv[2], threads=1) as llm:
    [c] = llm.generate(json.loads(sys.argv[3]), SamplingParams(max_tokens=12, ignore_eos=True, logprobs=0))
    print(json.dumps([list(c.token_ids), c.logprobs.tobytes().hex()]))
"""


@MATRIX
def test_two_processes(profile: str, real_model: str, prompts: list[list[int]], alone: Any) -> None:
    command = [sys.executable, "-c", ASK_AGAIN, real_model, profile, json.dumps(prompts[5])]
    ids, bits = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert tuple(ids) == alone(profile)[5].token_ids
    assert bits == alone(profile)[5].logprobs.tobytes().hex()


def golden_values(profile: str) -> dict[str, object]:
    """What tests/golden/smollm2.json records of a profile."""
    with LLM("smollm2", profile) as llm:
        ids = llm.tokenizer.encode("The same question deserves the same answer, 1,000 times out of 1,000.")
        prompt = llm.encode_prompt([{"role": "user", "content": "Tell me how a bridge carries its load."}])
        [story] = llm.generate(prompt, SamplingParams(max_tokens=200, ignore_eos=True, logprobs=0))
        assert story.logprobs is not None
        return {
            "logits": digest_array(llm.logits(ids)),
            "tokens": digest_array(np.asarray(story.token_ids, np.int32)),
            "first_tokens": list(story.token_ids[:12]),
            "logprobs": digest_array(story.logprobs),
            "weights": llm._source.weights_digest,
        }


@MATRIX
@pytest.mark.usefixtures("smollm2_path")
def test_golden_digests(profile: str) -> None:
    """The bits are those of the version of the contract that the file names; see CONTRIBUTING.md to change them."""
    assert golden_values(profile) == json.loads(GOLDEN.read_text())["profiles"][profile]


@MATRIX
def test_logits_do_not_depend_on_the_page_size(profile: str, small_model: str) -> None:
    ids, seen = list(range(70)), {}
    for page_size in (1, 8, 16, 256):
        with LLM(small_model, profile, page_size=page_size) as llm:
            seen[page_size] = llm.logits(ids)
    for page_size, logits in seen.items():
        assert_bitwise_equal(logits, seen[16], f"page size {page_size}")
