"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

import pytest
from live import Live, joined, steady

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"n": 3, "temperature": 1, "seed": 5},
        {"logprobs": True, "top_logprobs": 3, "n": 2, "temperature": 1.5, "seed": 0},
        {"logprobs": True, "return_token_ids": True, "ignore_eos": True},
        {"stop": "a", "presence_penalty": 0.5, "top_k": 50, "min_p": 0.01, "temperature": 1, "seed": 9},
    ],
)
def test_a_joined_stream_is_the_whole_answer(api: Live, body: dict[str, Any]) -> None:
    body = {"messages": [USER], "max_tokens": 12} | body
    api.ok(PATH, **body)
    whole = steady(api.ok(PATH, **body))
    assert steady(joined(api.stream(PATH, **body, stream_options={"include_usage": True}))) == whole


def test_without_a_limit_an_answer_ends_with_the_context(api: Live) -> None:
    answer = api.chat(ignore_eos=True)
    assert answer["usage"]["total_tokens"] == 512
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["samebits"]["params"]["max_tokens"] == {"value": None, "origin": "route"}


def test_a_rendered_template_gives_the_same_prompt_on_the_other_route(api: Live) -> None:
    chat = api.chat("Name a colour.", max_tokens=5, return_token_ids=True)
    text = "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n"
    other = api.complete(text, max_tokens=5, return_token_ids=True, add_special_tokens=False)
    assert other["choices"][0]["prompt_token_ids"] == chat["prompt_token_ids"]
    assert other["samebits"]["prompt_tokens_sha256"] == chat["samebits"]["prompt_tokens_sha256"]
    assert other["choices"][0]["text"] == chat["choices"][0]["message"]["content"]


def test_the_date_is_the_servers(api: Live) -> None:
    ids = api.chat("date", max_tokens=1, return_token_ids=True)["prompt_token_ids"]
    assert "2024-07-26" in api.ok("/detokenize", tokens=ids)["prompt"]


def test_parts_and_the_newer_name_of_system(api: Live) -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    one = api.chat("Hi", max_tokens=4)
    assert api.ok(PATH, messages=[{"role": "user", "content": parts}], max_tokens=4)["choices"] == one["choices"]
    old, new = ([{"role": role, "content": "Be brief."}, USER] for role in ("system", "developer"))
    assert api.ok(PATH, messages=old, max_tokens=4)["choices"] == api.ok(PATH, messages=new, max_tokens=4)["choices"]


def test_an_empty_message_is_a_prompt(api: Live) -> None:
    assert api.chat("", max_tokens=1)["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("temperature", [0, 0.0001, 2])
@pytest.mark.parametrize("top", [None, 0, 5])
def test_logprobs(api: Live, temperature: float, top: int | None) -> None:
    answer = api.chat(max_tokens=6, temperature=temperature, seed=1, logprobs=True, top_logprobs=top)
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"]
    for token in content:
        assert token.keys() == {"token", "logprob", "bytes", "top_logprobs"}
        assert len(token["top_logprobs"]) == (top or 0)
        assert token["logprob"] <= 0
        best = [t["logprob"] for t in token["top_logprobs"]]
        assert best == sorted(best, reverse=True)
        if temperature < 0.001 and top:
            assert token["top_logprobs"][0] | {"top_logprobs": token["top_logprobs"]} == token


def test_logprobs_are_the_models_own_at_any_temperature(api: Live) -> None:
    """With the token forced, its log-probability is the same: before temperature and bias."""
    body = {"max_tokens": 1, "logprobs": True, "logit_bias": {"70": 100}, "seed": 3}
    values = {api.chat(temperature=t, **body)["choices"][0]["logprobs"]["content"][0]["logprob"] for t in (0, 1e-4, 2)}
    assert len(values) == 1


def test_bytes_of_tokens_add_up_to_the_text(api: Live, script: Any) -> None:
    text = "a😀👩‍💻漢字z"
    api: Live = script(text.encode(), api.ok("/tokenize", messages=[USER])["count"])
    choice = api.chat(logprobs=True)["choices"][0]
    assert choice["message"]["content"] == text
    tokens = choice["logprobs"]["content"]
    assert bytes(b for t in tokens for b in t["bytes"] or []) == text.encode()
    assert (tokens[-1]["token"], tokens[-1]["bytes"]) == ("<|im_end|>", None)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"top_logprobs": 5}, "top_logprobs", "invalid_value"),
        ({"logprobs": False, "top_logprobs": 5}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"max_tokens": 50, "max_completion_tokens": 5}, "max_completion_tokens", "invalid_value"),
        ({"response_format": {"type": "no_such_format"}}, "response_format.type", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "Hi"}, "messages", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages[1].role", "invalid_value"),
        ({"messages": [USER | {"name": "x"}]}, "messages[0].name", "unsupported_parameter"),
        ({"messages": [USER | {"content": None}]}, "messages[0].content", "invalid_value"),
        (
            {"messages": [USER | {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
            "invalid_value",
        ),
        ({"messages": [USER | {"content": "\ud800"}]}, "messages[0].content", "invalid_value"),
        ({"store": True}, "store", "invalid_value"),
        ({"modalities": ["audio"]}, "modalities", "unsupported_parameter"),
        ({"service_tier": "flex"}, "service_tier", "invalid_value"),
    ],
)
def test_what_is_wrong_is_named(api: Live, body: dict[str, Any], param: str, code: str) -> None:
    error = api.refused(PATH, **({"messages": [USER]} | body))
    assert (error["param"], error["code"]) == (param, code)


def test_both_names_of_the_limit(api: Live) -> None:
    for body in ({"max_completion_tokens": 5}, {"max_tokens": 5}, {"max_tokens": 5, "max_completion_tokens": 5}):
        assert api.chat(ignore_eos=True, **body)["usage"]["completion_tokens"] == 5


def test_what_has_no_effect_has_none(api: Live) -> None:
    accepted = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
    }
    plain, more = api.chat(max_tokens=5), api.chat(max_tokens=5, **accepted)
    assert more["choices"] == plain["choices"]
    assert more["samebits"]["output_tokens_sha256"] == plain["samebits"]["output_tokens_sha256"]


def test_usage_and_choices_in_every_chunk(api: Live) -> None:
    body = {"messages": [USER], "max_tokens": 10}
    for n in (1, 2):
        for options in (None, {"include_usage": False}):
            chunks = api.stream(PATH, **body, n=n, stream_options=options)
            assert all(len(c["choices"]) == 1 and "usage" not in c for c in chunks)
            assert {c["choices"][0]["index"] for c in chunks} == set(range(n))
        chunks = api.stream(PATH, **body, n=n, stream_options={"include_usage": True})
        assert [c["choices"] for c in chunks[:-1]].count([]) == 0
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] == api.chat(max_tokens=10, n=n)["usage"]["completion_tokens"]


def test_the_fingerprint_is_in_every_chunk(api: Live) -> None:
    fingerprint = api.http.get("/v1/models/small").json()["samebits"]["fingerprint"]
    assert fingerprint.startswith("sha256:")
    assert {c["system_fingerprint"] for c in api.stream(PATH, messages=[USER], max_tokens=3)} == {fingerprint}
    assert api.chat(max_tokens=1)["system_fingerprint"] == fingerprint
