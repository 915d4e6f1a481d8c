"""POST /generate and /flush_cache, as SGLang's determinism test uses them; /tokenize and /detokenize."""

from __future__ import annotations

import random
from typing import Any

import pytest
from live import Live

SAMPLING = {
    "temperature": 0.7,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "max_new_tokens": 12,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "sampling_seed": 42,
}


def generate(api: Live, **body: Any) -> Any:
    response = api.post("/generate", **({"sampling_params": SAMPLING, "stream": False} | body))
    assert response.status_code == 200, response.text
    return response.json()


def same(first: Any, second: Any) -> bool:
    shown = [(a["text"], a["output_ids"], a["meta_info"]["output_token_logprobs"]) for a in (first, second)]
    return shown[0] == shown[1]


def test_one_prompt_in_batches_of_any_size(api: Live) -> None:
    results = []
    for size in (1, 2, 5, 16):
        batch = generate(api, text=["Tell me about Richard Feynman: "] * size, return_logprob=True)
        assert len(batch) == size
        results += batch
    assert all(same(results[0], other) for other in results)
    assert not same(results[0], generate(api, text=["Tell me about Richard Feynman:"], return_logprob=True)[0])


def test_prefixes_of_many_lengths_in_one_batch(api: Live) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 9
    prompts = [text[:length] for length in (1, 50, 200, 400)]
    rng, seen = random.Random(3), {}
    for size in (1, 3, 8):
        assert api.http.post("/flush_cache", params={"timeout": 60.0}).status_code == 200
        chosen = [rng.randrange(4) for _ in range(size)]
        answers = generate(api, text=[prompts[i] for i in chosen], return_logprob=True)
        for i, answer in zip(chosen, answers, strict=True):
            assert same(seen.setdefault(i, answer), answer)


def test_decoding_and_prefill_with_and_without_a_cache(api: Live) -> None:
    ids = [random.Random(42).randrange(256) for _ in range(100)]
    greedy = SAMPLING | {"temperature": 0, "max_new_tokens": 2}
    first = generate(api, input_ids=ids, sampling_params=greedy, return_logprob=True)
    longer = [*ids, *first["output_ids"][:-1]]
    one = greedy | {"max_new_tokens": 1}
    warm = generate(api, input_ids=longer, sampling_params=one, return_logprob=True)
    assert api.http.post("/flush_cache", params={"timeout": 60}).json()["pages"] > 0
    cold = generate(api, input_ids=longer, sampling_params=one, return_logprob=True)
    assert warm["meta_info"]["cached_tokens"] > 90
    assert cold["meta_info"]["cached_tokens"] == 0
    assert same(warm, cold)
    assert warm["meta_info"]["output_token_logprobs"][0] == first["meta_info"]["output_token_logprobs"][1]


def test_log_probabilities_of_a_prompt_are_those_of_generating_it(api: Live) -> None:
    """SGLang's p_vs_d mode: prefill against decode."""
    ids = [random.Random(1).randrange(256) for _ in range(60)]
    sampling = SAMPLING | {"ignore_eos": True}
    written = generate(api, input_ids=ids, sampling_params=sampling, return_logprob=True, top_logprobs_num=2)
    for start in (0, 1, 60):
        read = generate(
            api,
            input_ids=[*ids, *written["output_ids"]],
            sampling_params={"max_new_tokens": 1},
            return_logprob=True,
            top_logprobs_num=2,
            logprob_start_len=start,
        )["meta_info"]
        assert len(read["input_token_logprobs"]) == len(read["input_top_logprobs"]) == 72 - start
        assert read["input_token_logprobs"][60 - start :] == written["meta_info"]["output_token_logprobs"]
        assert read["input_top_logprobs"][60 - start :] == written["meta_info"]["output_top_logprobs"]
        assert (read["input_token_logprobs"][0][0] is None) == (start == 0)


@pytest.mark.parametrize("text", ["Hi", ["Hi", "Well"]])
def test_a_stream_holds_the_answer_so_far(api: Live, text: Any) -> None:
    body = {"text": text, "return_logprob": True, "top_logprobs_num": 1, "logprob_start_len": 0}
    generate(api, **body)  # so that all find the same in the cache
    whole = generate(api, **body)
    wanted = whole if isinstance(whole, list) else [whole]
    events = api.stream("/generate", sampling_params=SAMPLING, **body)
    last: dict[int, Any] = {}
    for event in events:
        index = event.pop("index", 0)
        before = last.get(index, {"text": "", "output_ids": [], "meta_info": {"input_token_logprobs": []}})
        assert event["text"].startswith(before["text"])
        assert event["output_ids"][:-1] == before["output_ids"]
        last[index] = event
    assert len(events) == 12 * len(wanted)
    for answer in [*wanted, *last.values()]:
        del answer["meta_info"]["id"]
    assert [last[i] for i in sorted(last)] == wanted


def test_forms_of_an_answer(api: Live) -> None:
    single = generate(api, text="Hi", rid="mine", return_logprob=True, top_logprobs_num=2, return_text_in_logprobs=True)
    meta = single["meta_info"]
    assert meta["id"] == "mine"
    assert meta["finish_reason"] == {"type": "length", "length": 12}
    assert len(meta["output_token_logprobs"]) == len(meta["output_top_logprobs"]) == meta["completion_tokens"] == 12
    assert isinstance(meta["output_token_logprobs"][0][2], str)
    assert meta["samebits"]["level"] == "portable"
    assert "output_token_logprobs" not in generate(api, text="Hi")["meta_info"]
    assert generate(api, text=["Hi"])[0]["output_ids"] == single["output_ids"]
    two = generate(api, text="Hi", sampling_params=SAMPLING | {"n": 2})
    assert two[0]["output_ids"] == single["output_ids"] != two[1]["output_ids"]
    stopped = generate(api, text="Hi", sampling_params={"stop_token_ids": [single["output_ids"][0]], **SAMPLING})
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": single["output_ids"][0]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "text"),
        ({"text": []}, "text"),
        ({"text": ""}, "text"),
        ({"input_ids": [[]]}, "input_ids[0]"),
        ({"input_ids": [99999]}, "prompt"),
        ({"text": "a", "sampling_params": {"regex": "x"}}, "sampling_params.regex"),
        ({"text": "a", "logprob_start_len": 0}, "logprob_start_len"),
        ({"text": "a", "logprob_start_len": 9, "return_logprob": True}, "logprob_start_len"),
        ({"text": "a", "logprob_start_len": -2, "return_logprob": True}, "logprob_start_len"),
        ({"text": "a", "model": "other"}, "model"),
    ],
)
def test_what_is_wrong_is_named(api: Live, body: dict[str, Any], param: str) -> None:
    response = api.post("/generate", **body)
    assert response.status_code in (400, 404)
    assert response.json()["error"]["param"] == param


def test_tokenize_and_back(api: Live) -> None:
    answer = api.ok("/tokenize", prompt="Hé <|im_end|>", return_token_strs=True)
    assert answer["count"] == len(answer["tokens"]) == 5
    assert answer["token_strs"][-1] == "<|im_end|>"
    assert answer["max_model_len"] == 512
    assert api.ok("/detokenize", tokens=answer["tokens"])["prompt"] == "Hé "
    assert api.ok("/detokenize", tokens=[])["prompt"] == ""
    long = "word " * 5000  # encoded in a thread
    assert api.ok("/tokenize", prompt=long)["count"] == len(long)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        (
            "/tokenize",
            {"messages": [{"role": "user", "content": "a"}], "add_special_tokens": True},
            "add_special_tokens",
        ),
        ("/tokenize", {"prompt": ""}, "prompt"),
        ("/detokenize", {"tokens": [258]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": ["1"]}, "tokens[0]"),
    ],
)
def test_what_tokenize_refuses(api: Live, path: str, body: dict[str, Any], param: str) -> None:
    assert api.refused(path, **body)["param"] == param
