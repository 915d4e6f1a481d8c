"""Every parameter: what is taken, what is refused, and that the refusal names it."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from samebits.engine import SamplingParams
from samebits.engine.params import PARAMETERS
from samebits.errors import InputError

NAN, INF = math.nan, math.inf
NUMBERS: dict[str, tuple[list[Any], list[Any]]] = {  # name: (taken, out of range)
    "temperature": ([0, 0.0, 1e-300, 1, 2, 2.0], [-1e-9, 2.0000001, 10**400, -(10**400)]),
    "top_p": ([1e-300, 0.5, 1, 1.0], [0, 0.0, -0.1, 1.0000001]),
    "min_p": ([0, 0.0, 0.5, 1], [-1e-9, 1.0000001]),
    "repetition_penalty": ([1e-300, 1, 10], [0, -1, 10.1]),
    "presence_penalty": ([-2, 0, 2.0], [-2.1, 2.1]),
    "frequency_penalty": ([-2, 0, 2.0], [-2.1, 2.1]),
}
INTEGERS: dict[str, tuple[list[Any], list[Any]]] = {
    "max_tokens": ([1, 2**31 - 1, None], [0, -1, 2**31]),
    "top_k": ([0, 1, 2**31 - 1], [-1, 2**31, None]),
    "seed": ([None, 0, -1, 1, 2**63 - 1, -(2**63)], [2**63, 2**64, -(2**63) - 1]),  # case S03
    "n": ([1, 128], [0, -1, 129, None]),
    "logprobs": ([None, 0, 20], [-1, 21]),
    "prompt_logprobs": ([None, 0, 20], [-1, 21]),
}
NOT_NUMBERS: list[Any] = ["1", "", b"1", True, False, [1], {}, (1,), 1j]
OTHERS: dict[str, tuple[list[Any], list[Any]]] = {
    "stop": (
        ["", "x", [], ["x"], ("x", "yz"), ["x"] * 16, "x" * 1000],
        [1, True, None, b"x", [""], ["x", ""], [1], [None], [b"x"], ["x"] * 17, "x" * 1001, {"x"}, {"x": 1}],
    ),
    "stop_token_ids": (
        [[], (), [0], (0, 2**31 - 1), [1] * 1024],
        [[1] * 1025, 1, None, "1", b"1", [-1], [2**31], [1.0], ["1"], [True], [None], {1}, {1: 2}],
    ),
    "ignore_eos": ([True, False], [None, 0, 1, "true", 0.0]),
    "logit_bias": (
        [None, {}, {0: -100, 5: 100.0, 2**31 - 1: 0}],
        [1, True, "x", [(1, 2)], {-1: 1}, {"abc": 1}, {"5": 1}, {1.0: 1}, {True: 1}, {None: 1}, {2**31: 1}]
        + [{5: bad} for bad in (150, -100.1, NAN, INF, -INF, "1", None, True, 10**400)],  # case S08
    ),
}


def refused(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        SamplingParams.from_mapping({name: value})
    assert caught.value.field.split("[")[0] == name
    assert str(caught.value).startswith(name)
    assert caught.value.remedy


def test_every_parameter_is_tried() -> None:
    assert set(PARAMETERS) == {*NUMBERS, *INTEGERS, *OTHERS}


@pytest.mark.parametrize("name", [*NUMBERS, *INTEGERS, *OTHERS])
def test_values_in_range_are_taken(name: str) -> None:
    for value in (NUMBERS | INTEGERS | OTHERS)[name][0]:
        params = SamplingParams.from_mapping({name: value})
        if name not in ("stop", "stop_token_ids"):
            assert getattr(params, name) == value
            assert type(getattr(params, name)) is type(value)
        else:
            assert isinstance(getattr(params, name), tuple)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_out_of_range_are_refused(name: str) -> None:
    for value in [*NUMBERS[name][1], *NOT_NUMBERS, None, NAN, INF, -INF]:
        refused(name, value)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_out_of_range_are_refused(name: str) -> None:
    for value in [*INTEGERS[name][1], *NOT_NUMBERS, 1.0, 1.5, NAN, INF]:
        refused(name, value)


@pytest.mark.parametrize("name", OTHERS)
def test_other_values_are_refused(name: str) -> None:
    for value in OTHERS[name][1]:
        refused(name, value)


@pytest.mark.parametrize("seed", [2**63, 2**64, -(2**63) - 1, 1.5, "7", True])
def test_case_s03_a_seed_that_is_none_is_refused_with_the_range(seed: Any) -> None:
    with pytest.raises(InputError, match=r"^seed: .* from -9223372036854775808 to 9223372036854775807\.$"):
        SamplingParams(seed=seed)


def test_case_s08_the_id_at_fault_is_named() -> None:
    with pytest.raises(InputError, match=r"^logit_bias\[500\]: 150 is out of range"):
        SamplingParams(logit_bias={3: 5, 500: 150})
    with pytest.raises(InputError, match=r"^logit_bias: 'abc' is not an integer"):
        SamplingParams(logit_bias={"abc": 5})  # type: ignore[dict-item]
    params = SamplingParams(logit_bias={999999: -100, 500: 5})
    with pytest.raises(InputError, match=r"^logit_bias: token id 999999 is outside the vocabulary.*0 to 127999\.$"):
        params.check_vocabulary(128000)
    params.check_vocabulary(1000000)


def test_an_unknown_name_is_refused_and_the_known_are_listed() -> None:
    with pytest.raises(InputError, match=r"^best_of: unknown sampling parameter\. Known: .*temperature"):  # case S09
        SamplingParams(best_of=2)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"^temprature: unknown sampling parameter\. Known: .*temperature"):
        SamplingParams.from_mapping({"temprature": 1})


def test_the_defaults_draw_nothing() -> None:
    params = SamplingParams()
    assert params == SamplingParams.from_mapping({})
    assert (params.temperature, params.seed, params.n, params.logit_bias) == (0, None, 1, None)


def test_parameters_cannot_change_afterwards() -> None:
    bias, stops = {5: 1.0, 3: 2.0}, ["a"]
    params = SamplingParams(logit_bias=bias, stop=stops, stop_token_ids=[1])
    bias[5], stops[0] = 9.0, "b"
    assert params.logit_bias == {3: 2.0, 5: 1.0}
    assert list(params.logit_bias) == [3, 5]
    assert params.stop == ("a",)
    assert SamplingParams(stop="a").stop == ("a",)
    with pytest.raises(FrozenInstanceError):
        params.seed = 3  # type: ignore[misc]


def test_what_was_given_is_remembered_also_where_it_is_the_default() -> None:
    params = SamplingParams(temperature=0.0, stop="x")
    assert params.given == {"temperature", "stop"}
    assert params.explicit == {"temperature": 0.0, "stop": ("x",)}
    assert SamplingParams().explicit == {}
    assert SamplingParams(max_tokens=None).explicit == {"max_tokens": None}
    assert SamplingParams(temperature=0.0) != SamplingParams(), "a model's default may stand in for one of them"
    assert SamplingParams(**params.explicit) == params
    for same in (copy.copy(params), pickle.loads(pickle.dumps(params))):
        assert same == params
    assert replace(params, seed=3).given == set(PARAMETERS)


def test_given_is_no_parameter() -> None:
    with pytest.raises(InputError, match=r"^given: unknown sampling parameter"):
        SamplingParams.from_mapping({"given": {"seed"}})


def test_scalars_of_numpy_are_numbers() -> None:
    given = SamplingParams(
        seed=np.int64(7), n=np.uint8(2), temperature=np.float32(0.5), top_p=np.float64(0.5), top_k=np.int32(3),
        logit_bias={np.int64(5): np.float32(1.5)}, stop_token_ids=[np.int16(4)], ignore_eos=np.bool_(True),
    )  # fmt: skip
    plain = SamplingParams(
        seed=7, n=2, temperature=0.5, top_p=0.5, top_k=3, logit_bias={5: 1.5}, stop_token_ids=[4], ignore_eos=True
    )
    assert given == plain
    assert type(given.seed) is type(given.n) is int
    assert type(given.temperature) is type(given.top_p) is float
    assert given.logit_bias is not None
    assert [(type(k), type(v)) for k, v in given.logit_bias.items()] == [(int, float)]
    for wrong in ({"seed": np.float64(1)}, {"temperature": np.bool_(True)}, {"n": np.array([1])}, {"top_p": np.nan}):
        with pytest.raises(InputError):
            SamplingParams.from_mapping(wrong)


@pytest.mark.parametrize(
    "value", [10**5000, [10**5000], "x" * 5000, -(10**5000)], ids=["long", "inside", "text", "negative"]
)
@pytest.mark.parametrize("name", ["seed", "temperature", "n", "ignore_eos", "logprobs"])
def test_a_long_value_is_not_shown_whole(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{name}: ") as caught:
        SamplingParams.from_mapping({name: value})
    assert len(str(caught.value)) < 300
