"""/openapi.json is true: real answers have the shapes it states, and generated requests get no answer it lacks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from live import NAME, Live

from samebits.api import schema_answers as shapes
from samebits.api import schema_response_answers as response_shapes
from waiting import PATIENCE_S

SMALL = {"model": NAME, "max_tokens": 2, "max_completion_tokens": 2, "max_output_tokens": 2}
# Every second request has none of the fields that only go with others: random ones hardly ever fit each other.
DEPENDENT = ("tools", "tool_choice", "parallel_tool_calls", "use_beam_search", "best_of", "length_penalty", "include")
SIMPLE = {"messages": [{"role": "user", "content": "Hi"}], "input": "Hi", "prompt": "Hi"}
GENERATED = settings(
    max_examples=25,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_answers_have_their_documented_shape(api: Live) -> None:
    body = {"max_tokens": 3, "n": 2, "temperature": 1, "return_token_ids": True}
    shapes.ChatCompletion.model_validate(api.chat(logprobs=True, top_logprobs=2, **body), strict=True)
    shapes.ChatCompletion.model_validate(api.chat(max_tokens=1), strict=True)
    shapes.TextCompletion.model_validate(api.complete(["a", "b"], logprobs=2, **body), strict=True)
    shapes.ModelList.model_validate(api.http.get("/v1/models").json(), strict=True)
    shapes.Tokenized.model_validate(api.ok("/tokenize", prompt="a", return_token_strs=True), strict=True)
    native = {"text": "a", "return_logprob": True, "top_logprobs_num": 2, "sampling_params": {"max_new_tokens": 2}}
    shapes.NativeAnswer.model_validate_json(api.post("/generate", **native).content)
    response = api.ok("/v1/responses", input="Hi", max_output_tokens=3, metadata={"a": "b"}, temperature=1)
    response_shapes.ResponseObject.model_validate(response, strict=True)
    shapes.ErrorAnswer.model_validate(api.post("/v1/completions").json(), strict=True)


def test_every_route_documents_its_errors(api: Live) -> None:
    document = api.http.get("/openapi.json").json()
    paths = document["paths"]
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/health"} <= paths.keys()
    for path, methods in paths.items():
        for operation in methods.values():
            assert "422" not in operation["responses"], path
    assert "HTTPValidationError" not in document["components"]["schemas"]
    request = document["components"]["schemas"]["ChatRequest"]
    assert request["additionalProperties"] is False
    assert request["properties"]["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}


def accepted_of(operation: Any) -> int:
    """Sends generated requests to one operation; checks each answer, and counts those with 200."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    accepted = sent = 0

    @GENERATED
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        nonlocal accepted, sent
        sent += 1
        if isinstance(case.body, dict):
            case.body |= {name: value for name, value in SMALL.items() if name in case.body}
            if sent % 2:
                case.body |= {name: value for name, value in SIMPLE.items() if name in case.body}
                for name in DEPENDENT:
                    case.body.pop(name, None)
        response = case.call(timeout=PATIENCE_S)
        assert response.status_code < 500, response.text
        # A document cannot say what fits the vocabulary, the context, or another field.
        case.validate_response(response, excluded_checks=[positive_data_acceptance])
        accepted += response.status_code == 200

    check()
    return accepted


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_generated_requests(api: Live) -> None:
    """schemathesis: requests that fit the document and requests that do not; no 5xx, no undocumented answer."""
    schemathesis = pytest.importorskip("schemathesis", reason="the extra 'clients' is not installed")
    schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json")
    accepted = {op.path: accepted_of(op) for op in (result.ok() for result in schema.get_all_operations())}
    assert accepted["/v1/chat/completions"] > 0, "no generated request was accepted"
    assert accepted["/v1/completions"] > 0, "no generated request was accepted"
    assert accepted["/v1/responses"] > 0, "no generated request was accepted"
