"""Policies and beam search: a default gives way to what a request asks for, which is said; what is forced does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from live import NAME, Live, live
from stub import Stub

from samebits import LLM
from samebits.api import beams
from samebits.engine.params import PARAMETERS
from samebits.gateway.policy import BUILT_IN, NOT_OF_SEARCH, Chosen, Policy, with_policy
from small_model import write_model

CHAT = "/v1/chat/completions"
SEARCH: dict[str, Any] = {"use_beam_search": True, "best_of": 3, "n": 2, "max_tokens": 4}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    policies = {
        "hot": {"force": {"temperature": 0.5}},
        "searching": {"default": {"use_beam_search": True, "best_of": 2}},
    }
    with LLM(write_model(tmp_path_factory.mktemp("model"))) as llm, live({NAME: llm}, policies=policies) as server:
        yield server


def asked(api: Live, policy: str, **body: Any) -> Any:
    message = {"role": "user", "content": "Hi"}
    headers = {"x-samebits-policy": policy}
    return api.http.post(CHAT, json={"model": NAME, "messages": [message], **body}, headers=headers)


def warned(policy: str, name: str) -> str:
    return f"the default of the policy {policy} for {name} was left out: it does not go with the request"


def test_the_list_is_that_of_the_engine() -> None:
    spelled = {"prompt_logprobs": "echo"}
    refused = {spelled.get(name, name) for name in PARAMETERS} - beams._IN_COMMON | {"temperature"}
    assert refused <= NOT_OF_SEARCH.keys()
    assert not NOT_OF_SEARCH.keys() & (beams._IN_COMMON - {"temperature"})


@pytest.mark.parametrize(("policy", "names"), [("balanced", ["temperature"]), ("creative", ["temperature", "top_p"])])
def test_a_default_that_a_search_does_not_take_is_left_out_and_told(api: Live, policy: str, names: list[str]) -> None:
    plain = asked(api, "plain", **SEARCH)
    answer = asked(api, policy, **SEARCH)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"] == plain.json()["choices"]
    block = answer.json()["samebits"]
    assert block["warnings"] == [warned(policy, name) for name in names]
    assert block["params"]["temperature"] == plain.json()["samebits"]["params"]["temperature"]
    # Negative control: without a search the same defaults hold, and nothing is left out.
    sampled = asked(api, policy, max_tokens=4).json()["samebits"]
    assert sampled["params"]["temperature"]["origin"] == f"policy {policy}"
    assert sampled["warnings"] == []


def test_what_is_forced_still_ends_the_request_and_names_the_policy(api: Live) -> None:
    error = asked(api, "hot", **SEARCH).json()["error"]
    assert error["param"] == "temperature"
    assert error["message"].endswith("(set by the policy hot)")
    assert asked(api, "balanced", temperature=0.5, **SEARCH).status_code == 400, "the request contradicts itself"


def test_a_default_search_gives_way_to_a_request_that_samples(api: Live) -> None:
    assert "beam" in asked(api, "searching", max_tokens=4).json()["choices"][0]
    answer = asked(api, "searching", max_tokens=4, temperature=0.5, seed=1).json()
    assert "beam" not in answer["choices"][0]
    assert answer["samebits"]["warnings"] == [warned("searching", name) for name in ("use_beam_search", "best_of")]
    assert asked(api, "searching", max_tokens=4, use_beam_search=False).status_code == 200


def test_an_upstream_gets_what_the_answer_says(serve: Any, upstream: Stub) -> None:
    server = serve(policy="balanced")
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "use_beam_search": True}
    block = server.post(CHAT, **body).json()["samebits"]
    assert "temperature" not in upstream.asked[0].body
    assert block["warnings"] == [warned("balanced", "temperature")]


@pytest.mark.parametrize("body", [SEARCH, SEARCH | {"temperature": 0}, {"temperature": 0.3}, {}])
def test_what_a_request_says_is_never_withheld(body: dict[str, Any]) -> None:
    for name, policy in BUILT_IN.items():
        done = with_policy(CHAT, body, Chosen(name, policy))
        assert set(done.withheld) <= (policy.default or {}).keys() - body.keys()
        assert not set(done.withheld) & done.origins.keys()
        forced = policy.force or {}
        assert {key: value for key, value in done.body.items() if key in body and key not in forced} == {
            key: value for key, value in body.items() if key not in forced
        }


def test_a_temperature_of_zero_goes_with_a_search() -> None:
    done = with_policy(CHAT, SEARCH, Chosen("p", Policy(default={"temperature": 0, "tool_choice": "auto"})))
    assert (done.body["temperature"], done.withheld) == (0, ())
