"""Mutated requests: each gets an answer that is not a fault of the server, and none leaves a trace."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from typing import Any

import httpx
import pytest
from live import NAME, Live

from waiting import PATIENCE_S

SEEDS: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "model": NAME,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            ],
            "max_tokens": 3,
            "temperature": 0.7,
            "seed": 1,
            "logprobs": True,
            "top_logprobs": 2,
            "stop": ["x"],
            "logit_bias": {"65": 1.5},
            "stream": False,
        },
    ),
    (
        "/v1/completions",
        {
            "model": NAME,
            "prompt": ["ab", "c"],
            "max_tokens": 2,
            "n": 2,
            "echo": True,
            "top_p": 0.9,
            "top_k": 5,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "presence_penalty": 0.1,
            "frequency_penalty": -0.1,
            "stop_token_ids": [3],
            "determinism": "portable",
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    (
        "/generate",
        {"text": ["a"], "sampling_params": {"max_new_tokens": 2, "sampling_seed": 7}, "return_logprob": True},
    ),
    ("/tokenize", {"model": NAME, "prompt": "Hé", "return_token_strs": True}),
    ("/detokenize", {"model": NAME, "tokens": [1, 2, 3]}),
]
NUMBERS = [0, 1, -1, 2**31, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, 5e-324]
TEXTS = ["", "a", "\x00", "\ud800", "é" * 50, "<|im_end|>", "portable"]
NESTED = [[], {}, [[]], [None], [1], ["a"], [[1], ["a"]], {"a": {}}, {"type": "text", "text": "x"}]
VALUES: list[Any] = [None, True, False, *NUMBERS, *TEXTS, *NESTED]


def mutated(value: Any, rng: random.Random) -> Any:
    """The value with one thing changed somewhere inside it."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        match rng.randrange(6):
            case 0:
                del value[key]
            case 1:
                value[rng.choice(["x", key + "s", "", "functions", "seed"])] = copy.deepcopy(rng.choice(VALUES))
            case _:
                value[key] = mutated(value[key], rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        match rng.randrange(4):
            case 0:
                value.insert(at, copy.deepcopy(rng.choice(VALUES)))
            case 1:
                value *= 3
            case _:
                value[at] = mutated(value[at], rng)
        return value
    return copy.deepcopy(rng.choice(VALUES))


def scrambled(content: bytes, rng: random.Random) -> bytes:
    """The bytes with a few changed, lost or doubled."""
    data = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at]
            case _:
                data[at:at] = data[at : at + rng.randrange(1, 20)]
        if not data:
            break
    return bytes(data)


def check(response: httpx.Response, sent: bytes) -> None:
    assert response.status_code < 500, f"{sent!r}: {response.text}"
    if response.status_code != 200:
        assert response.json()["error"].keys() == {"message", "type", "param", "code"}, sent
    elif response.headers["content-type"].startswith("text/event-stream"):
        assert response.text.endswith("data: [DONE]\n\n") or '"error"' in response.text, sent
    else:
        assert response.json() is not None


def fuzz(api: Live, requests: int, seed: int) -> None:
    rng = random.Random(seed)
    golden = api.chat("golden", max_tokens=12, temperature=1, seed=4)
    statuses: Counter[int] = Counter()
    for _ in range(requests):
        path, body = copy.deepcopy(rng.choice(SEEDS))
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            body = mutated(body, rng)
        content = json.dumps(body).encode()
        if rng.random() < 0.15:
            content = scrambled(content, rng)
        headers = {"content-type": "application/json"}
        response = api.http.post(path, content=content, headers=headers, timeout=PATIENCE_S)
        check(response, content)
        statuses[response.status_code] += 1
    assert statuses[200] > requests // 20, f"hardly any was accepted: {statuses}"
    assert statuses[400] > requests // 5, f"hardly any was refused: {statuses}"
    again = api.chat("golden", max_tokens=12, temperature=1, seed=4)
    assert again["choices"] == golden["choices"]
    assert again["samebits"]["logprobs_sha256"] == golden["samebits"]["logprobs_sha256"]
    assert api.engine.unfinished == api.engine.pool.held == api.driver.choices == 0
    assert api.http.get("/health").status_code == 200


def test_mutated_requests(api: Live) -> None:
    fuzz(api, 300, seed=1)


@pytest.mark.proof
def test_20000_mutated_requests(api: Live) -> None:
    fuzz(api, 20_000, seed=2)
