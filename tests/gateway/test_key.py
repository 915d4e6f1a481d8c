"""Keys: requests that could answer differently have different ones, and equal meaning has one."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.errors import InputError
from samebits.gateway.json_body import read_json
from samebits.gateway.key import KeyParts, effective_body, form_of, is_deterministic, outside
from samebits.ledger.routes import CHAT, COMPLETIONS, RESPONSES

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}],
    "temperature": 0,
    "max_tokens": 16,
}
OBJECT = {"type": "object", "properties": {"zulu": {"type": "string"}, "alpha": {"type": "string"}}}
TURNED = {"type": "object", "properties": {"alpha": {"type": "string"}, "zulu": {"type": "string"}}}


def key(body: Any, *, path: str = CHAT, tenant: str = "t", identity: Any = None, check: str | None = None) -> str:
    fields = effective_body(path, body, {}, aliases=False)
    return KeyParts(tenant, path, "m", identity or {"fingerprint": "f"}, fields, check).digest


def tool(schema: Any) -> Any:
    return [{"type": "function", "function": {"name": "f", "parameters": schema}}]


def form(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"seed": 1}),
        ({"seed": 1}, {"seed": 2}),
        ({"seed": 1}, {"seed": "1"}),
        ({"seed": 2**53 + 1}, {"seed": 2**53 + 2}),
        ({"seed": 2**60}, {"seed": str(2**60)}),
        ({"temperature": 0}, {"temperature": 0.1}),
        ({}, {"top_p": 0.5}),
        ({"max_tokens": 16}, {"max_tokens": 400}),
        ({}, {"stop": ["."]}),
        ({"stop": ["a", "b"]}, {"stop": ["b", "a"]}),
        ({"n": 1}, {"n": 2}),
        ({"n": 1}, {"n": "1"}),
        ({"n": 1}, {"n": True}),
        ({}, {"logit_bias": {"7": 1}}),
        ({}, {"presence_penalty": 0.5}),
        ({}, {"frequency_penalty": 0.5}),
        ({}, {"tools": tool(OBJECT)}),
        ({"tools": tool(OBJECT)}, {"tools": tool(TURNED)}),
        ({"tool_choice": "auto"}, {"tool_choice": "none"}),
        ({}, {"parallel_tool_calls": False}),
        ({}, {"response_format": {"type": "json_object"}}),
        ({"response_format": form(OBJECT)}, {"response_format": form(TURNED)}),
        ({"num_ctx": 2048}, {"num_ctx": 8192}),
        ({}, {"unknown": None}),
        ({"unknown": {"a": 1, "b": 2}}, {"unknown": {"b": 2, "a": 1}}),
        ({"unknown": [["a", 1]]}, {"unknown": {"a": 1}}),
        ({"unknown": {"ordered": [["a", 1]]}}, {"unknown": {"a": 1}}),
        ({"messages": BODY["messages"][::-1]}, {}),
        ({"messages": [{"role": "user", "content": "Hi."}]}, {"messages": [{"role": "user", "content": "Hi"}]}),
        ({}, {"logprobs": True}),
    ],
)
def test_bodies_that_differ_in_one_thing_have_different_keys(one: Any, other: Any) -> None:
    assert key(BODY | one) != key(BODY | other)


def test_everything_around_the_body_counts() -> None:
    keys = [
        key(BODY),
        key(BODY, tenant="other"),
        key(BODY, path=COMPLETIONS),
        key(BODY, identity={"fingerprint": "g"}),
        key(BODY, identity={"fingerprint": "f", "resolved": "m-2"}),
        key(BODY, identity={"fingerprint": "f", "adapter": "a"}),
        key(BODY, check="regex a"),
    ]
    assert len(set(keys)) == len(keys)


def spelled(text: str) -> str:
    return key(read_json(text.encode()))


def test_spelling_does_not_count() -> None:
    base = json.dumps(BODY)
    assert spelled(base) == spelled(json.dumps(BODY, indent=3)) == spelled(json.dumps(dict(reversed(BODY.items()))))
    assert spelled(base) == spelled(base.replace('"Hi"', '"\\u0048i"'))
    for one, other in (("1", "1.0"), ("0.10", "0.1"), ("1e2", "100"), ("-0.0", "0"), ("1e20", "100000000000000000000")):
        x, y = (base.replace('"temperature": 0', f'"temperature": {number}') for number in (one, other))
        assert spelled(x) == spelled(y), (one, other)
    turned = BODY | {"messages": [dict(reversed(message.items())) for message in BODY["messages"]]}
    assert key(turned) == key(BODY)
    ignored = {"user": "u", "metadata": {"a": "b"}, "stream": True, "stream_options": {"include_usage": True}}
    assert key(BODY | ignored) == key(BODY)
    assert key(BODY | {"user": "u"}, path=RESPONSES) != key(BODY, path=RESPONSES), "that route repeats it"


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '{"a":NaN}', '{"a":Infinity}', '{"a":"\\ud800"}'])
def test_what_has_no_one_meaning_has_no_key(text: str) -> None:
    with pytest.raises(InputError):
        spelled(text)


def test_defaults_that_are_known_are_filled_in() -> None:
    defaults = {"temperature": 0.0, "n": 1, "top_p": 1.0}

    def filled(body: Any) -> Any:
        return form_of(effective_body(CHAT, body, defaults, aliases=True))

    assert filled({"temperature": 0}) == filled({}) == filled({"temperature": None, "n": 1})
    assert filled({"temperature": 1}) != filled({})
    assert filled({"max_tokens": 5}) == filled({"max_completion_tokens": 5})
    assert filled({"stop": "a"}) == filled({"stop": ["a"]})


def image(url: str) -> dict[str, Any]:
    return BODY | {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


def test_images_count_in_full_and_addresses_of_images_forbid_reuse() -> None:
    rng = random.Random(3)
    urls = [f"data:image/png;base64,{rng.getrandbits(96):024x}" for _ in range(2000)]
    assert len({key(image(url)) for url in urls}) == len(set(urls))
    assert outside(image(urls[0])) is None
    assert outside(image("https://example.org/a.png")) == "content"
    assert outside({"previous_response_id": "r"}) == "previous_response_id"
    assert outside({"tools": [{"type": "web_search"}]}) == "tools"


def test_greedy_or_seeded_is_deterministic() -> None:
    for body in ({"temperature": 0}, {"temperature": 0.0}, {"temperature": 1, "seed": 0}, {"seed": -1}):
        assert is_deterministic(body)
    for body in ({}, {"temperature": 1}, {"temperature": None}, {"temperature": False}, {"seed": None}):
        assert not is_deterministic(body)


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("abñ😀")
)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text("ab", max_size=2), v, max_size=3), max_leaves=8
)


def meaning(value: Any) -> Any:
    """An independent statement of what may be told apart: types, order, and numbers by value."""
    if isinstance(value, dict):
        return ("object", tuple((name, meaning(item)) for name, item in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(meaning, value)))
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return (type(value).__name__, value)
    return ("number", value)


@settings(max_examples=400)
@given(values, values)
def test_keys_are_equal_exactly_where_meanings_are(one: Any, other: Any) -> None:
    same = meaning(one) == meaning(other)
    assert (key({"x": one}) == key({"x": other})) is same


@settings(max_examples=200)
@given(values, st.randoms(use_true_random=False), st.data())
def test_one_change_anywhere_changes_the_key(value: Any, rng: random.Random, data: st.DataObject) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "x": value}
    changed = copy.deepcopy(body)
    parents = [changed]
    for parent in parents:
        items = parent.values() if isinstance(parent, dict) else parent
        parents += [item for item in items if isinstance(item, dict | list) and item]
    parent = rng.choice(parents)
    place = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    fresh = data.draw(scalars)
    before, parent[place] = parent[place], fresh
    assert (key(changed) == key(body)) is (meaning(before) == meaning(fresh))
