"""What a server is told: one set of names and defaults for the YAML file and for the flags of ``samebits serve``."""

# ruff: noqa: RUF009  _key is dataclasses.field

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_type_hints

import yaml

from samebits.errors import InputError, shown
from samebits.gateway.levels import Level
from samebits.gateway.policy import Policy
from samebits.gateway.settings import CacheConfig, LedgerConfig, TenantConfig, UpstreamConfig
from samebits.gateway.settings import key as _key
from samebits.models.chat_template import DEFAULT_DATE

if TYPE_CHECKING:
    import pydantic

MOST_VALUES: Final = 10_000  # of a file; a model has ten


@dataclass(frozen=True)
class ModelConfig:
    """One model to serve. Only ``path`` and ``profile`` can move a bit."""

    engine: Literal["embedded"] = _key("embedded", "What computes it: the engine of samebits")
    path: str = _key("smollm2", "A GGUF file, a Hugging Face folder, or smollm2")
    profile: str = _key("bf16", "fp32, bf16, int8 or vendor")
    threads: int | None = _key(None, "Threads; one per usable CPU")
    isa: str | None = _key(None, "Instruction set; the fastest")
    max_batch: int = _key(32, "Most choices computed at once")
    chunk: int = _key(512, "Most tokens computed in one step")
    page_size: int = _key(16, "Tokens in a KV page: 1, 2, 4 … 256")
    kv_memory: int | None = _key(None, "Bytes for keys and values; 512 MiB")
    prefix_cache: bool = _key(True, "Keep prefixes of prompts")
    policy: str | None = _key(None, "Name of the policy; the server's")
    failover: tuple[str, ...] = _key((), "Other models that may answer where it cannot")
    stronger: str | None = _key(None, "Model that answers where a level is asked for that this one does not give")


LogLevel = Literal["debug", "info", "warning", "error"]
AnyModel = ModelConfig | UpstreamConfig


@dataclass(frozen=True)
class ServerConfig:
    """A server. Of its keys only ``date`` can move a bit: it is in the prompt of chat templates that ask for it."""

    models: dict[str, AnyModel]
    host: str = _key("127.0.0.1", "Address; loopback needs no API key")
    port: int = _key(8000, "Port; 0 takes a free one", low=0, high=65535)
    api_keys_file: str | None = _key(None, "File with one API key a line")
    api_keys_env: str | None = _key(None, "Variable with API keys, by commas")
    determinism: Level | None = _key(None, "Level if none is asked for; the highest")
    policy: str | None = _key(None, "Policy of requests for which none is named; plain")
    date: datetime.date = _key(DEFAULT_DATE, "Today, for chat templates")
    max_choices: int = _key(512, "Most open choices; more get 429", low=1)
    request_timeout: float = _key(600.0, "Seconds until a request gets 408", low=0.001)
    drain_timeout: float = _key(600.0, "Seconds for the rest on SIGTERM", low=0)
    body_limit: int = _key(8 << 20, "Bytes of a body; more get 413", low=1)
    log_level: LogLevel = _key("warning", "Messages on standard error: debug, info, warning or error")
    policies: dict[str, Policy] = field(default_factory=dict)
    tenants: dict[str, TenantConfig] = field(default_factory=dict)
    cache: CacheConfig = field(default_factory=CacheConfig)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)

    @property
    def embedded(self) -> dict[str, ModelConfig]:
        """The models that this process computes."""
        return {name: model for name, model in self.models.items() if isinstance(model, ModelConfig)}

    @property
    def upstreams(self) -> dict[str, UpstreamConfig]:
        """The models that other servers compute."""
        return {name: model for name, model in self.models.items() if isinstance(model, UpstreamConfig)}

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which takes the last of two equal keys, made to refuse the second."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                continue  # the parent refuses keys that are no scalars; "<<" gives defaults, which keys may replace
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r:.80} stands twice in one mapping", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_config(path: Path) -> dict[str, Any]:
    """The keys of a YAML file, unchecked but for being a mapping.

    Raises:
        InputError: the file cannot be read or is not a YAML mapping, a key stands twice, or aliases make it too large.
    """
    try:
        content = yaml.load(path.read_text("utf-8-sig"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", field="config", remedy="Name a YAML file.") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or number that there is not
        raise InputError(f"is not YAML: {error}", field="config", remedy="Correct it.") from error
    except RecursionError as error:
        raise InputError("is nested too deeply", field="config", remedy="See docs/config.md.") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError("is not a mapping of names to values", field="config", remedy="See docs/config.md.")
    if _is_larger(content, MOST_VALUES):
        raise InputError(
            f"holds more than {MOST_VALUES} values, aliases written out", field="config", remedy="Use fewer aliases."
        )
    return content


def _not_finite(value: Any, place: str = "") -> str | None:
    """Where a value holds NaN or an infinity, which JSON would make null: the default, without a word."""
    if isinstance(value, float):
        return None if math.isfinite(value) else place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inside = (_not_finite(item, f"{place}.{name}" if place else str(name)) for name, item in parts)
    return next((found for found in inside if found is not None), None)


def _is_larger(value: Any, most: int) -> bool:
    """Whether a value has more parts, counting what an alias repeats; also of one that holds itself."""
    waiting, count = [value], 0
    while waiting and count <= most:
        part = waiting.pop()
        children = list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else ()
        count += len(children)
        waiting += children
    return count > most


# Sections of the file that map names to objects, or are one.
_NAMED: Final[Mapping[str, type]] = {"policies": Policy, "tenants": TenantConfig}
_SINGLE: Final[Mapping[str, type]] = {"cache": CacheConfig, "ledger": LedgerConfig}
_SECTIONS: Final = ("models", *_NAMED, *_SINGLE)


def make_config(values: Mapping[str, Any]) -> ServerConfig:
    """A configuration from named values, such as those of a YAML file.

    Raises:
        InputError: an unknown name, or a value of the wrong type or out of range.
    """
    if not values.get("models"):
        raise InputError("names no model", field="models", remedy="Give one, such as smollm2.")
    if (place := _not_finite(values)) is not None:
        raise InputError("is no finite number", field=place, remedy="Give a number, or leave the key out.")
    sections: dict[str, Any] = {
        "models": {name: _model(keys, f"models.{name}") for name, keys in _mapping(values["models"], "models").items()}
    }
    for name, kind in _NAMED.items():
        if values.get(name) is not None:
            given = _mapping(values[name], name)
            sections[name] = {key: _checked(kind, keys, f"{name}.{key}") for key, keys in given.items()}
    for name, kind in _SINGLE.items():
        if values.get(name) is not None:
            sections[name] = _checked(kind, values[name], name)
    for name in sections["models"]:  # it stands in answers, headers and addresses
        if not name.strip() or not name.isprintable():
            raise InputError(f"{shown(name)} is no name", field="models", remedy="Use printable characters.")
    rest = {name: value for name, value in values.items() if name not in _SECTIONS}
    config: ServerConfig = _checked(ServerConfig, rest, "", without=_SECTIONS, given=sections)
    return config


def name_of(path: str) -> str:
    """The name that a model is served under where only its path is given: the last part, without ``.gguf``."""
    return Path(os.path.abspath(path)).name.removesuffix(".gguf")  # absolute: the last part of "." is no name


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InputError("is not a mapping of names", field=place, remedy="See docs/config.md.")
    return value


def _model(keys: Any, place: str) -> AnyModel:
    engine = keys.get("engine", "embedded") if isinstance(keys, dict) else "embedded"
    model: AnyModel = _checked(UpstreamConfig if engine == "upstream" else ModelConfig, keys, place)
    return model


def _checked(
    kind: type, values: Any, place: str, *, without: Sequence[str] = (), given: Mapping[str, Any] | None = None
) -> Any:
    """A dataclass from the values of a section.

    Args:
        place: of the section in the file.
        without: keys that are not read from ``values`` but stand in ``given``.
    """
    import orjson
    import pydantic

    from samebits.api.validation import first_problem

    def named(param: str | None) -> str:
        return ".".join(part for part in (place, param) if part) or "config"

    try:
        # As JSON, since that is where strict checking still takes a date from a text.
        checked = _checker(kind, without).model_validate_json(orjson.dumps(values)).model_dump(by_alias=True)
        return kind(**checked, **(given or {}))
    except orjson.JSONEncodeError as error:
        raise InputError(f"holds what JSON cannot: {error}", field=named(None), remedy="See docs/config.md.") from error
    except pydantic.ValidationError as error:
        problem = first_problem(error.errors(), skip=0)
        raise InputError(
            problem.said.removesuffix("."), field=named(problem.param), remedy="See docs/config.md."
        ) from error
    except InputError as error:  # of the dataclass itself
        raise InputError(error.message, field=named(error.field), remedy=error.remedy) from error


def _checker(kind: type, without: Sequence[str]) -> type[pydantic.BaseModel]:
    """A pydantic model with the names, types, defaults and bounds of a dataclass."""
    import pydantic

    hints = get_type_hints(kind)
    definitions: dict[str, Any] = {}
    for key in dataclasses.fields(kind):
        if key.name in without:
            continue
        bounds: dict[str, Any] = {name: key.metadata.get(bound) for name, bound in (("ge", "low"), ("le", "high"))}
        # By an alias, since a key may be called as something that every pydantic model has.
        definitions[f"key_{key.name}"] = hints[key.name], pydantic.Field(default=key.default, alias=key.name, **bounds)
    config = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return pydantic.create_model(kind.__name__, __config__=config, **definitions)
