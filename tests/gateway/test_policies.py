"""Policies: chosen by header, key, model or server; what they set, require, refuse and announce."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from live import NAME
from stub import Stub, chat

from samebits import LLM
from samebits.errors import InputError
from samebits.gateway.capability import fit, refused_by
from samebits.gateway.levels import LEVELS, includes, stronger
from samebits.gateway.policy import BUILT_IN, Chosen, Policy, choose, known_policies, with_policy
from samebits.gateway.settings import TenantConfig
from small_model import write_model
from waiting import PATIENCE_S

CHAT = "/v1/chat/completions"


def ask(content: str = "Hi", **body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}]} | body


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LLM(write_model(tmp_path_factory.mktemp("model"))) as made:
        yield made


def test_levels_are_ordered() -> None:
    for i, level in enumerate(LEVELS):
        assert [includes(level, other) for other in LEVELS] == [j <= i for j in range(len(LEVELS))]
        assert includes(level, None)
    assert stronger("run", "batch") == stronger("batch", "run") == "batch"
    assert stronger(None, "none") == "none"
    assert stronger(None, None) is None


def test_the_closest_choice_wins() -> None:
    known = known_policies({"own": Policy()})
    tenant = TenantConfig(policy="critical", allow=("own",))

    def chosen(header: str | None, tenant: TenantConfig | None, model: str | None, server: str | None) -> str:
        return choose(known, header=header, tenant=tenant, model=model, server=server).name

    assert chosen("own", tenant, "creative", "balanced") == "own"
    assert chosen(None, tenant, "creative", "balanced") == "critical"
    assert chosen(None, TenantConfig(), "creative", "balanced") == "creative"
    assert chosen(None, None, None, "balanced") == "balanced"
    assert chosen(None, None, None, None) == "plain"
    for header, whose in (("nope", None), ("creative", tenant)):
        with pytest.raises(InputError) as caught:
            chosen(header, whose, None, None)
        assert caught.value.field == "x-samebits-policy"


def test_what_is_forced_and_what_is_a_default() -> None:
    policy = Policy(force={"temperature": 0}, default={"top_p": 0.5, "n": 1})
    body = {"temperature": 0.7, "messages": [], "top_p": 0.9, "n": None}
    result = with_policy(CHAT, body, Chosen("p", policy))
    assert list(result.body.items()) == [("temperature", 0), ("messages", []), ("top_p", 0.9), ("n", 1)]
    assert result.origins == {"temperature": "policy p", "n": "policy p"}
    assert body["temperature"] == 0.7, "the request is not touched"
    assert with_policy(CHAT, {"temperature": 0}, Chosen("p", policy)).origins.keys() == {"top_p", "n"}


def test_what_models_refuse_is_known() -> None:
    for name in ("o1", "o3-mini", "o4-mini-2025-04-16", "gpt-5", "gpt-5-mini", "openai/o3"):
        assert "temperature" in refused_by(name), name
    for name in ("gpt-4o", "gpt-5-chat-latest", "o10x", "qwen-o3x", "solo1"):
        assert "temperature" not in refused_by(name), name
    assert "seed" in refused_by("claude-opus-4")
    assert refused_by("m", ("seed",)) == {"seed"}


def test_what_is_refused_is_dropped_aloud_or_refused() -> None:
    body = {"temperature": 0, "max_tokens": 5, "seed": None}
    refused = frozenset({"temperature", "max_tokens", "seed"})
    fitted = fit(body, refused, "announce")
    assert fitted.body == {"max_completion_tokens": 5, "seed": None}
    assert (fitted.dropped, fitted.renamed) == (("temperature",), {"max_tokens": "max_completion_tokens"})
    with pytest.raises(InputError) as caught:
        fit(body, refused, "refuse")
    assert caught.value.field == "temperature"
    assert fit(body, frozenset(), "refuse").body == body


def test_a_model_that_refuses_a_parameter(serve: Any, upstream: Stub) -> None:
    server = serve(m={"model": "o3-mini"}, policies={"loud": {"unmet": "announce"}})
    refused = server.post(CHAT, **ask(temperature=0))
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "temperature"
    assert upstream.calls == 0
    body = ask(temperature=0, max_tokens=5)
    answer = server.http.post(CHAT, json=body, headers={"x-samebits-policy": "loud"}).json()
    block = answer["samebits"]
    assert upstream.asked[-1].body.keys() == {"model", "messages", "max_completion_tokens"}
    assert block["gateway"]["dropped"] == ["temperature"]
    assert block["gateway"]["renamed"] == {"max_tokens": "max_completion_tokens"}
    assert any("temperature" in warning for warning in block["warnings"])
    assert block["level"] == "none", "greedy decoding was not passed on"


def test_a_required_level_is_refused_or_announced(serve: Any, upstream: Stub) -> None:
    policies = {"hard": {"level": "batch"}, "soft": {"level": "batch", "unmet": "announce"}}
    server = serve(m={"level": "run"}, policies=policies)

    def asked(policy: str) -> httpx.Response:
        response: httpx.Response = server.http.post(CHAT, json=ask(), headers={"x-samebits-policy": policy})
        return response

    assert asked("hard").json()["error"]["param"] == "determinism"
    block = asked("soft").json()["samebits"]
    assert (block["level"], block["gateway"]["level_asked"]) == ("run", "batch")
    assert any("batch" in warning for warning in block["warnings"])


def test_one_server_gives_fast_and_guaranteed_answers(serve: Any, upstream: Stub) -> None:
    strict = {"engine": "upstream", "base_url": upstream.url, "level": "batch", "model": "strict"}
    server = serve(m={"level": "none", "stronger": "strict"}, models={"strict": strict})
    assert server.post(CHAT, **ask()).json()["samebits"]["gateway"]["route"] == "m"
    for body, headers in (({"determinism": "batch"}, {}), ({}, {"x-samebits-policy": "critical"})):
        upstream.answer = lambda _: chat(model="strict")
        block = server.http.post(CHAT, json=ask(**body), headers=headers).json()["samebits"]
        assert (block["level"], block["gateway"]["route"]) == ("batch", "strict")
    assert server.post(CHAT, **ask(determinism="portable")).status_code == 400


def test_seeds(serve: Any, upstream: Stub) -> None:
    server = serve(policies={"derived": {"seed": "derive"}, "fixed": {"seed": 11}})

    def seed(policy: str, content: str, **body: Any) -> Any:
        headers = {"x-samebits-policy": policy, "x-samebits-cache": "bypass"}
        server.http.post(CHAT, json=ask(content, **body), headers=headers)
        return upstream.asked[-1].body.get("seed")

    first = seed("derived", "a")
    assert 0 <= first < 2**31
    assert first == seed("derived", "a", user="other")
    assert first != seed("derived", "b")
    assert seed("derived", "a", seed=4) == 4
    assert (seed("fixed", "a"), seed("fixed", "b")) == (11, 11)
    assert seed("plain", "a") is None


def test_a_policy_of_a_key(serve: Any, upstream: Stub) -> None:
    keys = ["ada key-of-ada-1", "key-of-nobody"]
    server = serve(keys=keys, tenants={"ada": {"policy": "critical", "allow": ["research"]}}, m={"level": "batch"})
    upstream.answer = lambda _: chat(model="m")
    ada = {"authorization": "Bearer key-of-ada-1"}

    def asked(headers: dict[str, str]) -> httpx.Response:
        return httpx.post(server.url + CHAT, json=ask(temperature=1), headers=headers, timeout=PATIENCE_S)

    gateway = asked(ada).json()["samebits"]["gateway"]
    assert gateway["policy"] == "critical"
    assert upstream.asked[-1].body["temperature"] == 0
    assert asked(ada | {"x-samebits-policy": "research"}).json()["samebits"]["gateway"]["policy"] == "research"
    assert asked(ada | {"x-samebits-policy": "creative"}).status_code == 400
    assert asked({"authorization": "Bearer key-of-nobody"}).json()["samebits"]["gateway"]["policy"] == "plain"


def test_an_alias_that_moves(serve: Any, upstream: Stub) -> None:
    server = serve(m={"level": "batch"}, policies={"strict": {"drift": "refuse"}, "quiet": {"drift": "ignore"}})

    def asked(policy: str, content: str) -> httpx.Response:
        headers = {"x-samebits-policy": policy}
        response: httpx.Response = server.http.post(CHAT, json=ask(content), headers=headers)
        return response

    assert asked("strict", "0").json()["error"]["code"] == "model_moved", "m-1 is not what was asked for"
    assert asked("plain", "1").json()["samebits"]["warnings"] == []
    upstream.answer = lambda _: chat(model="m-2")
    assert asked("strict", "2").json()["error"]["code"] == "model_moved"
    assert asked("plain", "3").json()["samebits"]["warnings"] == ["alias moved: m was m-1, and is m-2"]
    assert asked("plain", "4").json()["samebits"]["warnings"] == []
    upstream.answer = lambda _: chat(model="m-3")
    assert asked("quiet", "5").json()["samebits"]["warnings"] == []
    pinned = serve(m={"level": "batch", "revision": "m-3"})
    headers = {"x-samebits-policy": "critical"}
    assert pinned.http.post(CHAT, json=ask(), headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"policy": "nope"}, "policy"),
        ({"m": {"policy": "nope"}}, "models.m.policy"),
        ({"m": {"failover": ["m"]}}, "models.m.failover"),
        ({"m": {"stronger": "nope"}}, "models.m.stronger"),
        ({"m": {"api_key_env": "NOT_SET_ANYWHERE"}}, "models.m.api_key_env"),
        ({"tenants": {"t": {"policy": "nope"}}}, "tenants.t.policy"),
        ({"tenants": {"t": {"allow": ["nope"]}}}, "tenants.t.allow"),
        ({"policies": {"p": {"schema": {"type": 7}}}}, "policies.p.schema"),
        ({"policies": {"p": {"regex": "("}}}, "policies.p.regex"),
        ({"policies": {"p": {"check": "nowhere:f"}}}, "policies.p.check"),
        ({"policies": {"p": {"check": "checks_for_tests:NOT_A_FUNCTION"}}}, "policies.p.check"),
    ],
)
def test_names_that_lead_nowhere_are_refused_at_the_start(serve: Any, values: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        serve(**values)
    assert caught.value.field == field


def test_the_built_in_policies_contradict_nothing() -> None:
    assert {"plain", "creative", "balanced", "critical", "research"} == set(BUILT_IN)
    assert BUILT_IN["plain"] == Policy()


# ---- one name on each route ------------------------------------------------------------------------------------------

LIMITS = {CHAT: "max_tokens", "/v1/completions": "max_tokens", "/v1/responses": "max_output_tokens"}
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/generate": {"text": "Hi"},
}


@pytest.mark.parametrize("spelled", ["max_tokens", "max_output_tokens", "max_new_tokens"])
def test_a_parameter_has_the_name_of_its_route(spelled: str) -> None:
    rules = Chosen("p", Policy(force={spelled: 3}, default={"temperature": 0}))
    for path, name in [*LIMITS.items(), ("/generate", "max_new_tokens")]:
        done = with_policy(path, {}, rules)
        assert done.body == {"temperature": 0, name: 3}
        assert done.origins == {"temperature": "policy p", "max_tokens": "policy p"}
    assert with_policy(CHAT, {}, Chosen("p", Policy(force={"max_completion_tokens": 3}))).body == {
        "max_completion_tokens": 3
    }


def test_two_names_of_one_parameter_are_one() -> None:
    forced, default = Chosen("p", Policy(force={"max_tokens": 3})), Chosen("p", Policy(default={"max_tokens": 3}))
    for body in ({"max_completion_tokens": 9}, {"max_completion_tokens": 9, "max_tokens": None}):
        assert with_policy(CHAT, body, forced).body == body | {"max_completion_tokens": 3}
        assert with_policy(CHAT, body, default).body == body
        assert with_policy(CHAT, body, default).origins == {}
    assert with_policy(CHAT, {"max_tokens": 5, "max_completion_tokens": 9}, forced).body == {"max_tokens": 3}
    for wrong in ({"max_tokens": 1, "max_new_tokens": 2}, {"sampling_seed": 1}):
        with pytest.raises(InputError) as caught:
            Policy(force=wrong)
        assert caught.value.field == "force"


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("rule", ["force", "default"])
def test_a_limit_of_a_policy_holds_on_every_route(serve: Any, llm: LLM, path: str, rule: str) -> None:
    server = serve({NAME: llm}, policies={"short": {rule: {"max_tokens": 3}}})
    response = server.http.post(path, json={"model": NAME} | ASKED[path], headers={"x-samebits-policy": "short"})
    assert response.status_code == 200, response.text
    answer = response.json()
    block = answer.get("samebits") or answer["meta_info"]["samebits"]
    assert block["params"]["max_tokens"] == {"value": 3, "origin": "policy short"}


@pytest.mark.parametrize("path", LIMITS)
def test_an_upstream_gets_the_name_of_the_route(serve: Any, upstream: Stub, path: str) -> None:
    said = {"id": "r", "output": []} if path == "/v1/responses" else chat()
    said["choices"] = [{"index": 0, "text": "a", "message": {"content": "a"}, "finish_reason": "stop"}]
    upstream.answer = lambda _: said
    server = serve(policies={"short": {"force": {"max_tokens": 3}}})
    response = server.http.post(path, json={"model": "m"} | ASKED[path], headers={"x-samebits-policy": "short"})
    assert response.status_code == 200, response.text
    assert upstream.asked[-1].body == {"model": "m", **ASKED[path], LIMITS[path]: 3}
    assert response.json()["samebits"]["params"][LIMITS[path]] == {"value": 3, "origin": "policy short"}


def test_what_a_route_does_not_have_is_said_to_be_the_policys(serve: Any, llm: LLM, upstream: Stub) -> None:
    rules: dict[str, Any] = {
        "penalty": {"force": {"presence_penalty": 1}},
        "form": {"force": {"response_format": {"type": "json_object"}}},
        "hot": {"force": {"temperature": 7}},
    }
    server = serve({NAME: llm}, policies=rules)

    def error(path: str, policy: str, model: str = NAME) -> dict[str, Any]:
        body = {"model": model} | ASKED[path]
        response = server.http.post(path, json=body, headers={"x-samebits-policy": policy})
        return response.json().get("error", {}) if response.status_code == 400 else {}  # type: ignore[no-any-return]

    assert error("/v1/responses", "penalty")["param"] == "presence_penalty"
    assert "policy penalty, and /v1/responses has no such parameter" in error("/v1/responses", "penalty")["message"]
    assert error(CHAT, "penalty") == error("/generate", "penalty") == {}
    for model in (NAME, "m"):
        assert "text.format" in error("/v1/responses", "form", model)["message"]
    assert error(CHAT, "hot")["param"] == "temperature"
    assert error(CHAT, "hot")["message"].endswith("(set by the policy hot)")
    assert "policy" not in server.post(CHAT, model=NAME, messages=[], temperature=7).json()["error"]["message"]
    assert upstream.calls == 0


@pytest.mark.parametrize("given", [[], "", 0, False, "x"])
def test_what_is_no_object_of_parameters_is_refused_under_every_policy(serve: Any, llm: LLM, given: object) -> None:
    server = serve({NAME: llm})
    for policy in ("plain", "critical"):
        body = {"model": NAME, "text": "Hi", "sampling_params": given}
        response = server.http.post("/generate", json=body, headers={"x-samebits-policy": policy})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "sampling_params")
