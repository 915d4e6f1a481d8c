"""Targets as users name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from samebits.audit.targets import HttpSpec, ModelSpec, Prices, TransformersSpec, read_targets
from samebits.errors import InputError


def test_the_three_forms() -> None:
    assert read_targets("http://host:8000/", model="m") == (
        HttpSpec(name="host:8000", url="http://host:8000/", model="m"),
    )
    assert read_targets("model:smollm2") == (ModelSpec(name="model:smollm2", path="smollm2"),)
    assert read_targets("hf:/a/b") == (TransformersSpec(name="hf:/a/b", path="/a/b"),)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1/v1"),
        ("https://x.example/openai/deployments/d/", "https://x.example/openai/deployments/d"),
    ],
)
def test_the_address_of_the_api(url: str, base: str) -> None:
    assert HttpSpec(name="x", url=url).base == base


@pytest.mark.parametrize(
    ("target", "options", "field"),
    [
        ("smollm2", {}, "target"),
        ("model:", {}, "target"),
        ("http://", {}, "url"),
        ("http://h:port", {}, "url"),
        ("http://h/v1?key=1", {}, "url"),
        ("http://user:secret@h", {}, "url"),
        ("model:x", {"key_env": "K"}, "key_env"),
        ("hf:x", {"model": "m"}, "model"),
        ("no-such.yaml", {}, "target"),
    ],
)
def test_what_is_no_target_names_the_field(target: str, options: dict[str, str], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_targets(target, **options)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


def write(folder: Path, text: str) -> str:
    path = folder / "targets.yaml"
    path.write_text(text)
    return str(path)


def test_several_targets_of_a_file(tmp_path: Path) -> None:
    text = """
targets:
  - target: http://host:1
    name: azure
    model: m
    key_env: K
    key_header: api-key
    query: {api-version: "2024-10-21"}
    prices: {input: 1, output: 2.5}
  - target: model:smollm2
    profile: int8
  - {target: "hf:dir", dtype: float32}
"""
    azure, ours, theirs = read_targets(write(tmp_path, text))
    assert azure == HttpSpec(
        name="azure",
        url="http://host:1",
        model="m",
        key_env="K",
        key_header="api-key",
        query={"api-version": "2024-10-21"},
        prices=Prices(1, 2.5),
    )
    assert ours == ModelSpec(name="model:smollm2", path="smollm2", profile="int8")
    assert theirs == TransformersSpec(name="hf:dir", path="dir", dtype="float32")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("targets: []", "targets"),
        ("- target: model:x", "targets"),
        ("targets: [{name: x}]", "targets[0]"),
        ("targets: [{target: x}]", "targets[0].target"),
        ("targets: [{target: 'model:x', profil: int8}]", "targets[0].profil"),
        ("targets: [{target: 'model:x', threads: two}]", "targets[0].threads"),
        ("targets: [{target: 'model:x', chunk: .nan}]", "targets[0].chunk"),
        ("targets: [{target: 'hf:x', max_batch: 0}]", "max_batch: 0 is out of range"),
        ("targets: [{target: 'http://a', prices: {input: .nan, output: 1}}]", "prices.input: nan is no price"),
        ("targets: [{target: 'http://h', prices: {input: -1, output: 1}}]", "prices"),
        ("targets: [{target: 'http://h', key: sk-1234}]", "targets[0].key"),
        ("targets: [{target: 'model:x'}, {target: 'model:x'}]", "name"),
        ("targets: [{target: 'hf:x', dtype: int4}]", "dtype"),
    ],
)
def test_a_wrong_file_is_refused_where_it_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_targets(write(tmp_path, text))
    assert said in str(caught.value)


@pytest.mark.parametrize("header", ["", "a\nb: c", "api key", "clé"])
def test_the_name_of_a_header_is_one(header: str) -> None:
    with pytest.raises(InputError, match="key_header"):
        HttpSpec(name="t", url="http://h", key_header=header)
