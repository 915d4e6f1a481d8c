"""Configuration: one set of names and defaults for file, flags, help and document."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.repo.config_tables import DOCUMENT, rendered

from samebits import LLM
from samebits.api.auth import read_api_keys
from samebits.api.config import ModelConfig, ServerConfig, make_config, name_of, read_config
from samebits.cli.app import app
from samebits.cli.serve import _FILE_ONLY
from samebits.errors import InputError

NOT_OF_LLM = ("engine", "path", "policy", "failover", "stronger")
MODELS = {"models": {"small": {"path": "x"}}}


def test_defaults_and_values() -> None:
    config = make_config(MODELS)
    assert config == ServerConfig(models={"small": ModelConfig(path="x")})
    given = {"port": 9, "date": "2025-01-02", "request_timeout": 3, "models": {"a": {"profile": "fp32"}, "b": {}}}
    config = make_config(given)
    assert (config.port, config.date, config.request_timeout) == (9, datetime.date(2025, 1, 2), 3.0)
    assert config.models == {"a": ModelConfig(profile="fp32"), "b": ModelConfig()}


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "samebits.yaml"
    path.write_text("port: 81\ndate: 2025-01-02\nmodels:\n  a: {engine: embedded, path: p, prefix_cache: false}\n")
    config = make_config(read_config(path))
    assert config.date == datetime.date(2025, 1, 2)
    assert config.models["a"] == ModelConfig(path="p", prefix_cache=False)
    assert config.port == 81
    path.write_text("")
    assert read_config(path) == {}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "models"),
        ({"models": {}}, "models"),
        ({"models": ["a"]}, "models"),
        ({"models": {"a": None}}, "models.a"),
        ({"models": {"": {}}}, "models"),
        ({"models": {" ": {}}}, "models"),
        ({"models": {"a\nb": {}}}, "models"),
        (MODELS | {"request_timeout": float("nan")}, "request_timeout"),
        ({"models": {"a": {"paht": "x"}}}, "models.a.paht"),
        ({"models": {"a": {"engine": "vllm"}}}, "models.a.engine"),
        ({"models": {"a": {"threads": "2"}}}, "models.a.threads"),
        ({"models": {"a": {"prefix_cache": 1}}}, "models.a.prefix_cache"),
        (MODELS | {"prot": 8000}, "prot"),
        (MODELS | {"port": 65536}, "port"),
        (MODELS | {"port": True}, "port"),
        (MODELS | {"port": "8000"}, "port"),
        (MODELS | {"determinism": "total"}, "determinism"),
        (MODELS | {"date": "yesterday"}, "date"),
        (MODELS | {"max_choices": 0}, "max_choices"),
        (MODELS | {"request_timeout": 0}, "request_timeout"),
        (MODELS | {1: 2}, "config"),
        ({"models": {"a": {"engine": "upstream"}}}, "models.a.base_url"),
        ({"models": {"a": {"engine": "upstream", "base_url": "http://u:p@h/v1"}}}, "models.a.base_url"),
        ({"models": {"a": {"engine": "upstream", "base_url": "http://h/v1?key=s"}}}, "models.a.base_url"),
        ({"models": {"a": {"engine": "upstream", "base_url": "http://h", "path": "x"}}}, "models.a.path"),
        ({"models": {"a": {"engine": "upstream", "base_url": "http://h", "api": "x"}}}, "models.a.api"),
        ({"models": {"a": {"engine": "upstream", "base_url": "http://h", "attempts": 0}}}, "models.a.attempts"),
        (MODELS | {"policies": {"p": {"cache": "some"}}}, "policies.p.cache"),
        (MODELS | {"policies": {"p": {"force": {"seed": 1}}}}, "policies.p.force"),
        (MODELS | {"policies": {"p": {"regex": "a", "schema": {}}}}, "policies.p.regex"),
        (MODELS | {"policies": []}, "policies"),
        (MODELS | {"tenants": {"t": {"polcy": "x"}}}, "tenants.t.polcy"),
        (MODELS | {"cache": {"ttl": 0}}, "cache.ttl"),
        (MODELS | {"ledger": {"privacy": "none"}}, "ledger.privacy"),
        (MODELS | {"ledger": {"patterns": {"a": "b"}}}, "ledger.patterns"),
        (MODELS | {"ledger": {"patterns": ["a"], "privacy": "redacted"}}, "ledger.patterns"),
        (MODELS | {"ledger": {"receipt_key": "file"}}, "ledger.receipt_key"),
    ],
)
def test_what_is_wrong_is_named(values: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        make_config(values)
    assert caught.value.field == field
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "name"), [("smollm2", "smollm2"), ("a/b.gguf", "b"), ("a/b/", "b"), (".", "here"), ("x/..", "here")]
)
def test_a_model_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, name: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert name_of(path) == name


@pytest.mark.parametrize("content", ["- a\n", "a: [\n", "1: 2\n", "a: !!python/object:os.system {}\n", "\x00"])
def test_a_file_that_is_no_mapping(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_config(path)
    assert caught.value.field == "config"
    with pytest.raises(InputError):
        read_config(tmp_path / "none.yaml")


BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30)
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("port: 1\nport: 2\n", "'port' stands twice"),
        ("models:\n  a: {path: x, path: y}\n", "'path' stands twice"),
        ("models: {a: {}, a: {}}\n", "'a' stands twice"),
        (BOMB, "10000 values"),
        ("a: &a [*a]\n", "10000 values"),
        ("date: 2024-13-45\n", "not YAML"),
        ("a: " + "[" * 5000, "not YAML|deeply"),
    ],
)
def test_a_file_that_would_be_misread(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        read_config(path)
    assert caught.value.field == "config"


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("request_timeout: {}", "request_timeout"),
        ("cache: {{ttl: {}}}", "cache.ttl"),
        ("policies: {{p: {{force: {{temperature: {}}}}}}}", "policies.p.force.temperature"),
        ("policies: {{p: {{default: {{x: [1, {}]}}}}}}", "policies.p.default.x.1"),
    ],
)
def test_a_number_that_is_none_is_not_taken_for_a_default(tmp_path: Path, line: str, place: str, number: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("models: {m: {path: x}}\n" + line.format(number))
    with pytest.raises(InputError, match="is no finite number") as caught:
        make_config(read_config(path))
    assert caught.value.field == place
    path.write_text("models: {m: {path: x}}\n" + line.format(1.0))
    make_config(read_config(path))


@pytest.mark.parametrize(
    ("ledger", "field"),
    [
        ({"anchors": "x"}, "anchors"),
        ({"privacy": "redacted"}, "privacy"),
        ({"patterns": {"a": "b"}}, "patterns"),
        ({"url": "sqlite:///x", "patterns": {"a": "b"}}, "patterns"),
        ({"url": "sqlite:///x", "privacy": "redacted", "patterns": {"a": 5}}, "patterns.a"),
        ({"url": "sqlite:///x", "privacy": "redacted", "patterns": {}}, "patterns"),
    ],
)
def test_rules_of_a_ledger_need_one(ledger: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        make_config(MODELS | {"ledger": ledger})
    assert caught.value.field == f"ledger.{field}"
    make_config(MODELS | {"ledger": {"url": "sqlite:///x", "privacy": "redacted", "patterns": {"a": "b"}}})


def test_aliases_and_defaults_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "samebits.yaml"
    path.write_text(
        "\ufeffmodels:\n  a: &a {path: p, profile: fp32}\n  b: {<<: *a, profile: int8}\n  c: *a\n", encoding="utf-8"
    )
    models = make_config(read_config(path)).models
    assert [(m.path, m.profile) for m in models.values()] == [("p", "fp32"), ("p", "int8"), ("p", "fp32")]


def test_the_models_keys_are_the_arguments_of_llm_with_the_same_defaults() -> None:
    arguments = inspect.signature(LLM.__init__).parameters
    keys = {f.name: f.default for f in dataclasses.fields(ModelConfig) if f.name not in NOT_OF_LLM}
    assert keys == {name: p.default for name, p in arguments.items() if name not in ("self", "model")}


def test_the_flags_are_the_keys() -> None:
    group: Any = typer.main.get_command(app)
    flags = {p.name for p in group.commands["serve"].params}
    keys = {f.name for kind in (ModelConfig, ServerConfig) for f in dataclasses.fields(kind)}
    assert flags - {"model", "config", "locked", "locked_bits"} == keys - _FILE_ONLY


def test_the_document_is_what_the_code_says() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == rendered(text), "run: python -m tests.repo.config_tables"


def test_negative_control_a_table_out_of_step_is_seen() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for wrong in (
        text.replace("| `port` | `8000` |", "| `port` | `8001` |"),
        re.sub(r"\| `anchors` .*\n", "", text),
        text.replace("| `ttl` |", "| `tll` | | x |\n| `ttl` |"),
    ):
        assert wrong != text
        assert rendered(wrong) == text
    with pytest.raises(AssertionError, match="no section Ledger"):
        rendered(text.replace("## Ledger", "## Book"))


# ---- keys and addresses ----------------------------------------------------------------------------------------------


def test_an_address_that_others_reach_needs_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.3.2.1"):
        assert read_api_keys(make_config(MODELS | {"host": host})).digests == ()
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org", ""):
        with pytest.raises(InputError) as caught:
            read_api_keys(make_config(MODELS | {"host": host}))
        assert caught.value.field == "host"
    path = tmp_path / "keys"
    path.write_text("\ufeffalpha\n# team\n\n beta \n", encoding="utf-8")
    monkeypatch.setenv("KEYS_OF_A_TEST", "gamma, delta,")
    both = MODELS | {"host": "0.0.0.0", "api_keys_file": str(path), "api_keys_env": "KEYS_OF_A_TEST"}
    keys = read_api_keys(make_config(both))
    accepted = [k for k in ("alpha", "beta", "gamma", "delta", "", "# team") if keys.accept(b"Bearer " + k.encode())]
    assert accepted == ["alpha", "beta", "gamma", "delta"]


def test_rules_for_a_tenant_without_a_key_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("ada one\nada two\nthree\n", encoding="utf-8")
    keyed = MODELS | {"api_keys_file": str(path)}
    for values, tenant, known in (
        (keyed, "ada", True),
        (keyed, "key-3", True),
        (keyed, "Ada", False),
        (keyed, "default", False),
        (MODELS, "default", True),
        (MODELS, "ada", False),
    ):
        config = make_config(values | {"tenants": {tenant: {"policy": "critical"}}})
        if known:
            read_api_keys(config)
        else:
            with pytest.raises(InputError, match=f"tenants: '{tenant}' has no API key"):
                read_api_keys(config)


def test_one_key_is_of_one_tenant(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    config = make_config(MODELS | {"api_keys_file": str(path)})
    path.write_text("ada one\nada one\n", encoding="utf-8")
    assert read_api_keys(config).tenant(b"Bearer one") == "ada"
    path.write_text("ada one\nbob one\n", encoding="utf-8")
    with pytest.raises(InputError, match="one key to 'ada' and 'bob'"):
        read_api_keys(config)


def test_a_source_without_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# none\n")
    for source in ({"api_keys_file": str(path)}, {"api_keys_file": "nowhere"}, {"api_keys_env": "NOT_SET_ANYWHERE"}):
        with pytest.raises(InputError) as caught:
            read_api_keys(make_config(MODELS | source))
        assert caught.value.field == next(iter(source))
