"""Case M04: explicit values win, the model's defaults come next, and each value says where it came from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samebits.engine import Effective, SamplingParams, describe, resolve
from samebits.engine.params import PARAMETERS
from samebits.errors import InputError
from samebits.models import Default

FILE = {
    "temperature": Default(1.0, "file: temperature"),
    "top_k": Default(64, "file: top_k"),
    "top_p": Default(0.95, "file: top_p"),
    "repetition_penalty": Default(1.05, "file: repetition_penalty"),
}


def origins(effective: Effective) -> dict[str, str]:
    """The origins other than samebits."""
    return {name: origin for name, origin in effective.origins.items() if origin != "samebits"}


@pytest.mark.parametrize(
    ("explicit", "values"),
    [
        ({}, (1.0, 64, 0.95, 1.05)),
        ({"temperature": 0}, (0, 64, 0.95, 1.05)),
        ({"temperature": 0.0, "top_k": 0}, (0.0, 0, 0.95, 1.05)),
        ({"top_p": 0.5}, (1.0, 64, 0.5, 1.05)),
        ({"top_p": 1.0, "repetition_penalty": 1.0}, (1.0, 64, 1.0, 1.0)),
    ],
)
def test_explicit_values_win_also_where_they_are_the_default_of_samebits(
    explicit: dict[str, Any], values: tuple[float, ...]
) -> None:
    effective = resolve(explicit, FILE)
    assert tuple(getattr(effective.params, name) for name in FILE) == values
    assert origins(effective) == {n: "request" if n in explicit else FILE[n].origin for n in FILE}
    rest = {name: getattr(effective.params, name) for name in PARAMETERS if name not in FILE}
    assert rest == {name: getattr(SamplingParams(), name) for name in rest}


def test_without_a_file_the_defaults_are_those_of_samebits() -> None:
    effective = resolve({"seed": 4, "stop": "x"}, {})
    assert effective.params == SamplingParams(**resolve({}, {}).params.explicit | {"seed": 4, "stop": ("x",)})
    assert origins(effective) == {"seed": "request", "stop": "request"}
    assert set(effective.origins) == set(PARAMETERS)


def test_effective_parameters_ask_any_model_the_same() -> None:
    effective = resolve({"top_p": 0.5}, FILE)
    assert resolve(effective.params.explicit, {"temperature": Default(0.3, "another")}).params == effective.params


def test_a_default_that_cannot_be_used_is_refused_where_it_is_needed() -> None:
    broken = FILE | {"temperature": Default(2.5, "file: temperature")}
    with pytest.raises(InputError, match=r"^temperature: .*2\.5 \(file: temperature\) cannot be used") as caught:
        resolve({"top_k": 3}, broken)
    assert "from 0 to 2" in caught.value.remedy
    assert resolve({"temperature": 0.5}, broken).params.temperature == 0.5


@pytest.mark.parametrize("explicit", [{"temprature": 1}, {"top_p": 0}, {"top_k": "5"}])
def test_what_the_caller_gives_wrong_is_the_callers(explicit: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        resolve(explicit, FILE)
    assert caught.value.field in explicit
    assert "default" not in str(caught.value)


def test_the_description_is_json_and_complete() -> None:
    effective = resolve({"stop": ["a", "b"], "logit_bias": {5: 1.5}, "stop_token_ids": [7]}, FILE)
    described = describe(effective.params, effective.origins)
    assert json.loads(json.dumps(described)) == described
    assert list(described) == list(PARAMETERS)
    assert described["stop"] == {"value": ["a", "b"], "origin": "request"}
    assert described["logit_bias"]["value"] == {"5": 1.5}
    assert described["top_k"] == {"value": 64, "origin": "file: top_k"}
    assert described["max_tokens"] == {"value": 256, "origin": "samebits"}
