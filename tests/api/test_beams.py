"""Beam search over HTTP: the hypotheses of the Python API, and what does not go with it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live import NAME, Live, live
from test_disconnects import connection, reset, wait_for_idle

from samebits import LLM
from waiting import PATIENCE_S, wait_until

CHAT, LEGACY = "/v1/chat/completions", "/v1/completions"
PROMPTS = ["Hi", "A longer prompt that begins in another way", "x" * 40]
SEARCH: dict[str, Any] = {"use_beam_search": True, "best_of": 5, "n": 3, "max_tokens": 10, "return_token_ids": True}


def hypotheses(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(c["token_ids"], c["beam"]["score"], c["beam"]["logprob"], c["finish_reason"]) for c in answer["choices"]]


@pytest.fixture(scope="module")
def expected(model_folder: str) -> list[list[tuple[Any, ...]]]:
    with LLM(model_folder) as llm:
        found = [llm.beam_search(prompt, 5, 10, n=3) for prompt in PROMPTS]
    return [[(list(c.token_ids), c.score, c.total, c.finish_reason) for c in answer] for answer in found]


def test_the_hypotheses_of_the_python_api(api: Live, expected: list[Any]) -> None:
    answers = [api.complete(prompt, **SEARCH) for prompt in PROMPTS]
    assert [hypotheses(a) for a in answers] == expected
    assert hypotheses(api.complete(PROMPTS, **SEARCH)) == [h for answer in expected for h in answer]
    assert answers[0]["usage"]["completion_tokens"] == sum(len(h[0]) for h in expected[0])


def test_the_same_among_others(api: Live, expected: list[Any]) -> None:
    def ask(i: int) -> Any:
        if i % 3:
            return api.chat(str(i), max_tokens=8, temperature=1)
        return hypotheses(api.complete(PROMPTS[i // 3 % 3], **SEARCH))

    with ThreadPoolExecutor(16) as pool, api.standing() as engine:
        asked = [pool.submit(ask, i) for i in range(36)]
        wait_until(lambda: api.driver.choices == 10 + 6 * 5)  # of the first 16, six are searches
        engine.leave.set()
        answers = [each.result() for each in asked]
    for i in range(0, 36, 3):
        assert answers[i] == expected[i // 3 % 3]
    assert max(api.engine.stats.batch_sizes) > 5, "not exercised"


def test_of_a_conversation_with_logprobs(api: Live) -> None:
    answer = api.chat(**SEARCH, logprobs=True, top_logprobs=2, seed=5, temperature=0)
    assert api.chat(**SEARCH, logprobs=True, top_logprobs=2)["choices"] == answer["choices"]
    scores = [c["beam"]["score"] for c in answer["choices"]]
    assert scores == sorted(scores, reverse=True)
    for choice in answer["choices"]:
        content = choice["logprobs"]["content"]
        assert len(content) == len(choice["token_ids"])
        assert [len(t["top_logprobs"]) for t in content] == [2] * len(content)
        assert choice["beam"]["logprob"] == pytest.approx(sum(t["logprob"] for t in content), rel=1e-5)
    params = answer["samebits"]["params"]
    assert params["best_of"] == {"value": 5, "origin": "request"}
    assert params["length_penalty"] == {"value": 1.0, "origin": "samebits"}
    assert answer["samebits"]["logprobs_sha256"].startswith("sha256:")


def test_length_penalty_orders_the_hypotheses(api: Live) -> None:
    for penalty, divisor in ((0, 1), (2, 100)):
        answer = api.complete("Hi", **SEARCH, length_penalty=penalty)
        for choice in answer["choices"]:
            if len(choice["token_ids"]) == 10:
                assert choice["beam"]["score"] == pytest.approx(choice["beam"]["logprob"] / divisor)


def test_the_width_is_n_where_best_of_is_not_given(api: Live) -> None:
    answer = api.complete("Hi", use_beam_search=True, n=4, max_tokens=5)
    assert answer["samebits"]["params"]["best_of"] == {"value": 4, "origin": "samebits"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 3}, "best_of"),
        ({"use_beam_search": False, "length_penalty": 1}, "length_penalty"),
        ({"use_beam_search": True, "best_of": 2, "n": 3}, "n"),
        ({"use_beam_search": True, "best_of": 17}, "best_of"),
        ({"use_beam_search": True, "length_penalty": 2.5}, "length_penalty"),
        ({"use_beam_search": True, "temperature": 0.5}, "temperature"),
        ({"use_beam_search": True, "top_p": 0.5}, "top_p"),
        ({"use_beam_search": True, "stop": "a"}, "stop"),
        ({"use_beam_search": True, "logit_bias": {"5": 1}}, "logit_bias"),
        ({"use_beam_search": True, "frequency_penalty": 1}, "frequency_penalty"),
        ({"use_beam_search": True, "ignore_eos": True}, "ignore_eos"),
        ({"use_beam_search": True, "stream": True}, "stream"),
        ({"use_beam_search": True, "max_tokens": 1000}, "max_tokens"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, LEGACY])
def test_what_does_not_go_with_a_search_is_refused_by_name(
    api: Live, path: str, fields: dict[str, Any], param: str
) -> None:
    prompt = {"messages": [{"role": "user", "content": "Hi"}]} if path == CHAT else {"prompt": "Hi"}
    assert api.refused(path, **prompt, **fields)["param"] == param


def test_a_search_counts_its_beams(model_folder: str) -> None:
    body = {"model": NAME, "prompt": "Hi", "use_beam_search": True, "best_of": 6, "max_tokens": 60}
    with LLM(model_folder) as llm, live({NAME: llm}, max_choices=8) as server:
        with ThreadPoolExecutor(4) as pool, server.standing() as engine:
            asked = [pool.submit(server.post, LEGACY, **body) for _ in range(4)]
            wait_until(lambda: sum(each.done() for each in asked) == 3)
            engine.leave.set()
            assert sorted(each.result().status_code for each in asked) == [200, 429, 429, 429]
        assert server.driver.choices == 0


def test_a_client_that_goes_away_ends_its_search(model_folder: str) -> None:
    body = {"model": NAME, "prompt": "Hi", "use_beam_search": True, "best_of": 8, "max_tokens": 400}
    with LLM(model_folder) as llm, live({NAME: llm}) as server:
        with server.standing(steps=5) as engine, connection(server, body) as sock:
            assert engine.reached.wait(PATIENCE_S)
            assert server.driver.choices == 8
            reset(sock)
            wait_until(lambda: server.driver.choices == 0)
        wait_for_idle(server)
