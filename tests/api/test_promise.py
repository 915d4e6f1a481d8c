"""The block ``samebits``: digests that anyone can recompute, levels, effective parameters and their origins."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest
from live import NAME, Live, live

from samebits import LLM
from samebits.gateway.levels import LEVELS
from small_model import write_model


def digest(kind: str, code: str, values: list[Any]) -> str:
    """As docs/guide/server.md states it, with nothing of samebits."""
    header = f"{kind} {len(values)}\n".encode()
    return "sha256:" + hashlib.sha256(header + struct.pack(f"<{len(values)}{code}", *values)).hexdigest()


def test_digests_are_of_what_was_answered(api: Live) -> None:
    answer = api.complete(["ab", "c"], max_tokens=5, n=2, temperature=1, seed=2, logprobs=0, return_token_ids=True)
    choices, block = answer["choices"], answer["samebits"]
    prompts = [*choices[0]["prompt_token_ids"], -1, *choices[2]["prompt_token_ids"]]
    ids, logprobs = [], []
    for i, choice in enumerate(choices):
        ids += [-1] * (i > 0) + choice["token_ids"]
        logprobs += [1.0] * (i > 0) + choice["logprobs"]["token_logprobs"]
    assert block["prompt_tokens_sha256"] == digest("int32", "i", prompts)
    assert block["output_tokens_sha256"] == digest("int32", "i", ids)
    assert block["logprobs_sha256"] == digest("float32", "f", logprobs)
    assert block["prompt_tokens_sha256"] != digest("int32", "i", prompts[:-1]), "negative control"
    assert block["seed"] == 2
    assert block["fingerprint"] == answer["system_fingerprint"]
    assert block["receipt_id"] is None


def test_one_choice_has_the_digest_of_its_ids_alone(api: Live) -> None:
    answer = api.chat(max_tokens=5, return_token_ids=True)
    assert answer["samebits"]["output_tokens_sha256"] == digest("int32", "i", answer["choices"][0]["token_ids"])
    tokenized = api.ok("/tokenize", messages=[{"role": "user", "content": "Hi"}])
    assert answer["samebits"]["prompt_tokens_sha256"] == tokenized["tokens_sha256"]


def test_the_text_that_the_template_made_is_digested(api: Live) -> None:
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    expected = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert api.chat("Hi", max_tokens=1)["samebits"]["rendered_prompt_sha256"] == expected
    response = api.ok("/v1/responses", input="Hi", max_output_tokens=1)
    assert response["samebits"]["rendered_prompt_sha256"] == expected
    assert api.chat("Ho", max_tokens=1)["samebits"]["rendered_prompt_sha256"] != expected
    assert api.complete(text, max_tokens=1)["samebits"]["rendered_prompt_sha256"] is None


def test_logprobs_are_digested_whether_or_not_they_are_asked_for(api: Live) -> None:
    silent, shown = api.chat(max_tokens=5), api.chat(max_tokens=5, logprobs=True)
    assert silent["samebits"]["logprobs_sha256"] == shown["samebits"]["logprobs_sha256"]


def test_prefill_chunks_are_told_and_move_nothing_else(model_folder: str) -> None:
    with LLM(model_folder, chunk=16, prefix_cache=False) as llm, live({NAME: llm}) as api:
        body = {"max_tokens": 2, "temperature": 1, "seed": 4}
        short, cut = api.complete("a" * 8, **body), api.complete("a" * 40, **body)
        several = api.complete(["a" * 40, "a" * 8], **body)
        beams = api.complete("a" * 40, max_tokens=2, use_beam_search=True)
    assert [a["samebits"]["prefill_chunks"] for a in (short, cut, several, beams)] == [1, 3, 3, 3]
    with LLM(model_folder) as llm, live({NAME: llm}) as api:
        whole = api.complete("a" * 40, **body)
    assert whole["samebits"] == cut["samebits"] | {"prefill_chunks": 1}


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_can_be_promised_and_gives_the_same_bits(api: Live, level: str) -> None:
    answer = api.chat(max_tokens=5, determinism=level)
    assert answer["samebits"]["level"] == level
    assert answer["samebits"]["logprobs_sha256"] == api.chat(max_tokens=5)["samebits"]["logprobs_sha256"]
    assert api.chat(max_tokens=1)["samebits"]["level"] == "portable"


def test_what_cannot_be_promised_is_refused(model_folder: str) -> None:
    with LLM(model_folder, "vendor") as llm, live({NAME: llm}) as api:
        assert api.chat(max_tokens=1)["samebits"]["level"] == "none"
        assert api.chat(max_tokens=1, determinism="none")["samebits"]["level"] == "none"
        for level in LEVELS[1:]:
            error = api.refused("/v1/completions", prompt="a", determinism=level)
            assert error["param"] == "determinism"
        assert api.http.get("/v1/models").json()["data"][0]["samebits"]["level"] == "none"


def test_the_servers_own_level(model_folder: str) -> None:
    with LLM(model_folder) as llm, live({NAME: llm}, determinism="run") as api:
        assert api.chat(max_tokens=1)["samebits"]["level"] == "run"
        assert api.chat(max_tokens=1, determinism="portable")["samebits"]["level"] == "portable"


def test_effective_parameters_and_their_origins(tmp_path: Path) -> None:
    folder = write_model(tmp_path, do_sample=True, temperature=0.5, top_k=64, top_p=0.95, repetition_penalty=1.05)
    with LLM(folder) as llm, live({NAME: llm}) as api:

        def params(**body: Any) -> dict[str, Any]:
            shown: dict[str, Any] = api.complete(max_tokens=2, **body)["samebits"]["params"]
            return shown

        plain = params()
        assert plain["temperature"] == {"value": 0.5, "origin": "generation_config.json: temperature"}
        assert plain["top_k"]["value"] == 64
        assert plain["min_p"] == {"value": 0.0, "origin": "samebits"}
        assert params(temperature=0)["temperature"] == {"value": 0, "origin": "request"}
        own = params(top_p=0.5)
        assert own["top_p"] == {"value": 0.5, "origin": "request"}
        assert own["repetition_penalty"]["value"] == 1.05
        assert params(logit_bias={"65": 1})["logit_bias"]["value"] == {"65": 1}
        fingerprint = api.http.get("/v1/models").json()["data"][0]["samebits"]["fingerprint"]
    write_model(tmp_path, do_sample=True, temperature=0.6)
    with LLM(folder) as llm:
        assert llm.fingerprint != fingerprint


def test_a_doubled_bos_is_warned_of_and_left_as_it_is(tmp_path: Path) -> None:
    """A rendered template that is encoded as a text has two; on both routes there is one where it is sent rightly."""
    rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    with LLM(write_model(tmp_path, bos=True)) as llm, live({NAME: llm}) as api:
        chat = api.chat("Hi", max_tokens=3, return_token_ids=True)
        right = api.complete(rendered, max_tokens=3, add_special_tokens=False, return_token_ids=True)
        wrong = api.complete(rendered, max_tokens=3, return_token_ids=True)
        ids = chat["prompt_token_ids"]
        assert right["choices"][0]["prompt_token_ids"] == ids
        assert ids.count(llm.tokenizer.bos_id) == 2, "one for each turn"
        assert wrong["choices"][0]["prompt_token_ids"] == [llm.tokenizer.bos_id, *ids]
        assert chat["samebits"]["warnings"] == right["samebits"]["warnings"] == []
        [warning] = wrong["samebits"]["warnings"]
        assert "two BOS" in warning
        assert api.ok("/tokenize", prompt=rendered)["warnings"] == [warning]
