"""POST /v1/completions: prompts of every kind, streams, stops, seeds, log-probabilities."""

from __future__ import annotations

import itertools
from itertools import pairwise
from typing import Any

import pytest
from live import Live, error_of, joined, steady

PATH = "/v1/completions"


def test_texts_and_ids_give_the_same_answers_in_the_order_of_the_prompts(api: Live) -> None:
    texts = ["abc", "xyz!", "q"]
    ids = [api.ok("/tokenize", prompt=text)["tokens"] for text in texts]
    together = api.complete(texts, max_tokens=6)
    assert [c["index"] for c in together["choices"]] == [0, 1, 2]
    assert steady(api.complete(ids, max_tokens=6))["choices"] == together["choices"]
    alone = [api.complete(text, max_tokens=6)["choices"][0]["text"] for text in texts]
    assert [c["text"] for c in together["choices"]] == alone
    assert api.complete(ids[0], max_tokens=6)["choices"][0]["text"] == alone[0]
    assert len(set(alone)) > 1


def test_the_default_limit_is_that_of_openai(api: Live) -> None:
    answer = api.complete(max_tokens=None, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["samebits"]["params"]["max_tokens"] == {"value": 16, "origin": "route"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"n": 3, "temperature": 1, "seed": 5},
        {"prompt": ["ab", "cd"], "n": 2, "temperature": 0.7, "seed": -1, "logprobs": 3, "stop": ["a", "xy"]},
        {"echo": True},
        {"prompt": ["Hé", "yo"], "echo": True, "logprobs": 1, "n": 2, "temperature": 1, "seed": 3},
        {"logprobs": 2, "return_token_ids": True, "ignore_eos": True},
        {"prompt": [[1, 2, 3], [4]], "frequency_penalty": 1.5, "logit_bias": {"65": 3}, "echo": True, "n": 2},
    ],
)
def test_a_joined_stream_is_the_whole_answer(api: Live, body: dict[str, Any]) -> None:
    body = {"prompt": "Hello", "max_tokens": 12} | body
    whole = steady(api.ok(PATH, **body))  # also fills the prefix cache, so that all three count the same
    whole = steady(api.ok(PATH, **body))
    chunks = api.stream(PATH, **body, stream_options={"include_usage": True})
    assert steady(joined(chunks)) == whole
    assert len(chunks) > 5


def test_negative_control_a_lost_chunk_is_seen(api: Live) -> None:
    body = {"prompt": "Hello", "max_tokens": 12}
    whole = steady(api.ok(PATH, **body))
    chunks = api.stream(PATH, **body, stream_options={"include_usage": True})
    del chunks[3]
    assert steady(joined(chunks))["choices"] != whole["choices"]


@pytest.mark.parametrize(
    ("text", "stop", "shown", "reason"),
    [
        (b" D E F G H", ["D E F G"], " ", "stop"),
        (b" D E F G H", ["E F H"], " D E F G H", "stop"),
        (b"a\nQ: b", ["\nQ:"], "a", "stop"),
        (b"hello world", ["lo wo"], "hel", "stop"),
        (b"xxabcd", ["abc", "ab"], "xx", "stop"),
        (b"xxabcd", ["ab", "abc"], "xx", "stop"),
        (b"xxab", ["abc"], "xxab", "stop"),
        (b"xxabxxab", ["abc"], "xxabxxa", "length"),
    ],
)
def test_nothing_of_a_stop_text_leaks(script: Any, text: bytes, stop: list[str], shown: str, reason: str) -> None:
    api: Live = script(text, "Letters: A B C")
    body = {"prompt": "Letters: A B C", "stop": stop, "max_tokens": 7 if reason == "length" else 40}
    whole = api.ok(PATH, **body)["choices"][0]
    assert (whole["text"], whole["finish_reason"]) == (shown, reason)
    pieces = [c["choices"][0] for c in api.stream(PATH, **body)]
    assert "".join(p["text"] for p in pieces) == shown
    assert pieces[-1]["finish_reason"] == reason


def test_characters_of_many_bytes_come_whole(script: Any) -> None:
    text = "a😀👩‍💻漢字z"
    api: Live = script(text.encode())
    whole = api.complete(max_tokens=60, logprobs=0)["choices"][0]
    assert whole["text"] == text
    pieces = [c["choices"][0]["text"] for c in api.stream(PATH, prompt="Hi", max_tokens=60)]
    assert "".join(pieces) == text
    assert [p for p in pieces if p] == list(text)
    assert whole["logprobs"]["tokens"][1] == "bytes:\\xf0"
    content = api.ok("/v1/completions", prompt="Hi", max_tokens=3)["choices"][0]
    assert content["text"] == "a�", "only the limit may cut a character"


def test_seeds(api: Live) -> None:
    def texts(**body: Any) -> list[str]:
        return [c["text"] for c in api.complete(temperature=1, max_tokens=12, **body)["choices"]]

    four = texts(n=4, seed=42)
    assert len(set(four)) == 4
    assert texts(n=4, seed=42) == four
    assert texts(n=2, seed=42) == four[:2]
    assert texts(seed=42) == four[:1]
    assert len(set(texts(n=4, seed=2**63 - 1))) == 4
    for seed in (0, -1, 1, 2**63 - 1, -(2**63)):
        assert texts(seed=seed) == texts(seed=seed)
    assert texts(seed=0) != texts(seed=-1)


@pytest.mark.parametrize("body", [{}, {"seed": None}])
def test_a_seed_that_was_not_given_is_drawn_and_reported(api: Live, body: dict[str, Any]) -> None:
    first = api.complete(temperature=1, max_tokens=12, **body)
    drawn = first["samebits"]["seed"]
    assert api.complete(temperature=1, max_tokens=12, **body)["samebits"]["seed"] != drawn
    again = api.complete(temperature=1, max_tokens=12, seed=drawn)
    assert again["choices"] == first["choices"]
    assert api.complete(max_tokens=2, **body)["samebits"]["seed"] is None, "greedy needs none"


@pytest.mark.parametrize("seed", [2**63, 2**64, -(2**63) - 1, 1.5, "7", True, [1]])
def test_other_seeds_are_refused(api: Live, seed: Any) -> None:
    assert api.refused(PATH, prompt="a", temperature=1, seed=seed)["param"] == "seed"


def test_a_seeded_request_does_not_depend_on_an_unseeded_neighbour(api: Live) -> None:
    import concurrent.futures

    def ask(seed: int | None) -> dict[str, Any]:
        return api.complete(temperature=0.8, max_tokens=16, ignore_eos=True, return_token_ids=True, seed=seed)

    alone = ask(42)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for other in (None, 7, None, 7):
            first, second = pool.map(ask, [42, other])
            assert first["choices"] == alone["choices"]
            assert first["samebits"]["seed"] == 42
            assert second["choices"] != alone["choices"]


@pytest.mark.parametrize("prompt", ["", [""], ["", "Hi"], [], [[]], [[1], []], [["a"]], [1, "a"], 5, {}])
def test_a_prompt_without_tokens_is_refused_and_others_finish(api: Live, prompt: Any) -> None:
    error = api.refused(PATH, prompt=prompt, max_tokens=20)
    assert error["param"].startswith("prompt")
    assert api.http.get("/health").status_code == 200
    assert api.complete([65], max_tokens=1)["usage"]["prompt_tokens"] == 1


def test_an_overlong_prompt_is_refused_with_counts(api: Live) -> None:
    error = api.refused(PATH, prompt="a" * 600)
    assert error["code"] == "context_length_exceeded"
    assert "600" in error["message"]
    assert "511" in error["message"]
    error = api.refused(PATH, prompt="a" * 500, max_tokens=13)
    assert (error["param"], error["code"]) == ("max_tokens", "context_length_exceeded")


def test_echo(api: Live) -> None:
    plain = api.complete("Hällo", max_tokens=4)["choices"][0]["text"]
    assert api.complete("Hällo", max_tokens=4, echo=True)["choices"][0]["text"] == "Hällo" + plain


def test_an_echoed_prompt_has_log_probabilities(api: Live) -> None:
    """What a model wrote has the same bits when it is read: the usual way to score a text."""
    written = api.complete("Hällo", max_tokens=6, logprobs=2, return_token_ids=True, ignore_eos=True)["choices"][0]
    ids = written["prompt_token_ids"] + written["token_ids"]
    [read] = api.complete(ids, max_tokens=1, echo=True, logprobs=2)["choices"]
    start, shape = len(written["prompt_token_ids"]), read["logprobs"]
    assert shape["token_logprobs"][0] is None
    assert shape["top_logprobs"][0] is None
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert shape[name][start:-1] == written["logprobs"][name]
        assert len(shape[name]) == len(ids) + 1
    assert all(a <= b for a, b in pairwise(shape["text_offset"]))
    assert shape["text_offset"][-1] == len(read["text"]) - len(shape["tokens"][-1])
    [other] = api.complete([ids[1], ids[0], *ids[2:]], max_tokens=1, echo=True, logprobs=2)["choices"]
    assert other["logprobs"]["token_logprobs"][start:-1] != written["logprobs"]["token_logprobs"]
    error = api.refused(PATH, prompt="a", echo=True, logprobs=1, use_beam_search=True)
    assert error["param"] == "echo"


def test_legacy_logprobs(script: Any) -> None:
    api: Live = script("ab€d".encode())
    whole = api.complete(max_tokens=20, logprobs=2)["choices"][0]
    shape = whole["logprobs"]
    assert shape["tokens"] == ["a", "b", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "d", "<|im_end|>"]
    assert shape["text_offset"] == [0, 1, 2, 2, 2, 3, 4]
    assert [len(top) for top in shape["top_logprobs"]] == [2] * 7
    for token, logprob, top in zip(shape["tokens"], shape["token_logprobs"], shape["top_logprobs"], strict=True):
        assert top[token] == logprob
    assert api.complete(max_tokens=2, logprobs=0)["choices"][0]["logprobs"]["top_logprobs"] == [{}, {}]


def test_logit_bias(api: Live) -> None:
    assert (
        api.complete(max_tokens=1, logit_bias={"65": 100})["choices"][0]["text"]
        == api.ok("/detokenize", tokens=[65])["prompt"]
    )
    free = api.complete(max_tokens=50, ignore_eos=True, return_token_ids=True)["choices"][0]["token_ids"]
    banned = str(free[0])
    ids = api.complete(max_tokens=50, ignore_eos=True, return_token_ids=True, logit_bias={banned: -100})
    assert free[0] not in ids["choices"][0]["token_ids"]


@pytest.mark.parametrize(
    "bias", [{"999999": -100, "500": 5}, {"65": 150}, {"abc": 1}, {"-1": 1}, {"65": "x"}, {"6٥": 1}, {"65": None}, [1]]
)
def test_a_wrong_logit_bias_is_refused(api: Live, bias: Any) -> None:
    assert api.refused(PATH, prompt="a", logit_bias=bias)["param"].startswith("logit_bias")
    assert api.http.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temprature": 0.9}, "temprature"),
        ({"maxtokens": 4}, "maxtokens"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": 7}, "stop"),
        ({"stop": ["a", 7]}, "stop[1]"),
        ({"stop_token_ids": [99999]}, "stop_token_ids"),
        ({"logprobs": 21}, "logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"determinism": "total"}, "determinism"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"user": 5}, "user"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)
def test_what_is_wrong_is_named(api: Live, body: dict[str, Any], param: str) -> None:
    error = api.refused(PATH, **({"prompt": "a"} | body))
    assert error["param"] == param
    assert param in error["message"]


def test_null_is_the_default(api: Live) -> None:
    names = ("temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "logprobs", "stream", "user", "best_of")
    plain, nulls = api.complete(max_tokens=4), api.complete(max_tokens=4, **dict.fromkeys(names))
    assert nulls["choices"] == plain["choices"]


def test_usage_in_streams(api: Live) -> None:
    body = {"prompt": "usage", "max_tokens": 10, "ignore_eos": True}
    whole = api.ok(PATH, **body)["usage"]
    for options, n in itertools.product((None, {"include_usage": False}), (1, 2)):
        chunks = api.stream(PATH, **body, n=n, stream_options=options)
        assert all(len(c["choices"]) == 1 and "usage" not in c for c in chunks)
    chunks = api.stream(PATH, **body, stream_options={"include_usage": True})
    assert all(c["usage"] is None for c in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] | {"prompt_tokens_details": None} == whole | {"prompt_tokens_details": None}


def test_a_model_that_is_not_served(api: Live) -> None:
    error = error_of(api.post(PATH, model="gpt-4", prompt="a"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
