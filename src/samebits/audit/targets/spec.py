"""What a user names as target: one on the command line, or several in a YAML file."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from samebits.errors import InputError

FORMS = "Give http://HOST:PORT, model:PATH, hf:PATH, or a .yaml file with several (docs/guide/audit.md)."

MOST_BATCH: Final = 4096
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # a token, RFC 9110


@dataclass(frozen=True)
class Prices:
    """What a million tokens cost, in any currency."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise InputError(f"{value!r} is no price", field=f"prices.{name}", remedy="Give a number from 0.")


@dataclass(frozen=True, kw_only=True)
class HttpSpec:
    """An OpenAI-compatible server.

    Attributes:
        name: for people and for the results.
        url: with or without ``/v1``.
        model: None when the server has just one.
        key_env, key_file: where the API key is.
        key_header: ``authorization`` sends it as a bearer token, any other header as it is (Azure: ``api-key``).
        query: added to each request (Azure: ``api-version``).
        prices: per million tokens, for the plan.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}

    name: str
    url: str
    model: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    key_header: str = "authorization"
    query: dict[str, str] = field(default_factory=dict)
    prices: Prices | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host, parts = None, urlsplit("")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise InputError("is not the address of a server", field="url", remedy="Give http://HOST:PORT/v1.")
        if parts.username is not None or parts.password is not None:
            raise InputError("holds a user or password", field="url", remedy="Keep keys in key_env or key_file.")

        if not _HEADER.fullmatch(self.key_header):
            raise InputError("is not the name of a header", field="key_header", remedy="Give such as api-key.")

    @property
    def base(self) -> str:
        """The address to which ``/chat/completions`` is appended."""
        url = self.url.rstrip("/")
        return url if urlsplit(url).path else url + "/v1"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model in the engine of samebits, in this process. ``path`` and the rest as for ``samebits.LLM``."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}

    name: str
    path: str
    profile: str = "bf16"
    threads: int | None = None
    max_batch: int = 64
    chunk: int = 512
    prefix_cache: bool = True
    prices: None = None


@dataclass(frozen=True, kw_only=True)
class TransformersSpec:
    """A model in transformers, in this process.

    Attributes:
        name: for people and for the results.
        path: a folder in Hugging Face's layout, or a GGUF file.
        dtype: of the weights.
        max_batch: most requests that are padded into one batch.
        deterministic: torch.use_deterministic_algorithms and one thread, until the target is closed.
        unpack: weights of a GGUF file as plain matrices in ``dtype``; else as transformers keeps them, maybe in blocks.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}

    name: str
    path: str
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    max_batch: int = 32
    deterministic: bool = False
    unpack: bool = False
    prices: None = None

    def __post_init__(self) -> None:
        if not 1 <= self.max_batch <= MOST_BATCH:
            raise InputError(f"{self.max_batch} is out of range", field="max_batch", remedy=f"Give 1 to {MOST_BATCH}.")


TargetSpec = HttpSpec | ModelSpec | TransformersSpec


def read_targets(
    target: str,
    *,
    model: str | None = None,
    key_env: str | None = None,
    key_file: str | None = None,
    prices: Prices | None = None,
) -> tuple[TargetSpec, ...]:
    """The targets that a text names; the other arguments belong to a URL alone.

    Raises:
        InputError: none of the known forms, or a YAML file that is wrong.
    """
    if target.endswith((".yaml", ".yml")):
        specs, of_url = _read_yaml(Path(target)), False
    else:
        kind, values = _kind(target, "target")
        of_url = kind is HttpSpec
        if of_url:
            values |= {"model": model, "key_env": key_env, "key_file": key_file, "prices": prices}
        specs = (kind(**values),)
    for name, value in (("model", model), ("key_env", key_env), ("key_file", key_file), ("prices", prices)):
        if value is not None and not of_url:
            raise InputError("is for a URL", field=name, remedy="Leave it out, or put it into a YAML file.")
    return specs


def _kind(target: str, where: str) -> tuple[type[HttpSpec | ModelSpec | TransformersSpec], dict[str, Any]]:
    """The kind of target that a text names, and the arguments that the text alone gives."""
    if target.startswith(("http://", "https://")):
        return HttpSpec, {"name": target.split("://")[1].rpartition("@")[2].rstrip("/"), "url": target}
    for prefix, kind in (("model:", ModelSpec), ("hf:", TransformersSpec)):
        if target.startswith(prefix) and target != prefix:
            return kind, {"name": target, "path": target.removeprefix(prefix)}
    raise InputError(f"{target!r} is no target", field=where, remedy=FORMS)


def _read_yaml(path: Path) -> tuple[TargetSpec, ...]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", field="target", remedy=FORMS) from error
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {error}", field="target", remedy="Correct the file.") from error
    entries = content.get("targets") if isinstance(content, dict) and len(content) == 1 else None
    if not isinstance(entries, list) or not entries:
        raise InputError(
            "is not a list named targets", field="target", remedy="Write targets: and below it entries with target, …"
        )
    specs = tuple(_spec(f"targets[{i}]", entry) for i, entry in enumerate(entries))
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two targets are called {name!r}", field="name", remedy="Give each its own name.")
    return specs


def _spec(where: str, entry: object) -> TargetSpec:
    import pydantic

    if not isinstance(entry, dict) or not isinstance(entry.get("target"), str):
        raise InputError("has no target", field=where, remedy=FORMS)
    kind, values = _kind(entry["target"], f"{where}.target")
    values |= {str(name): value for name, value in entry.items() if name != "target"}
    try:
        # As JSON, since strict checking takes only that for a dataclass.
        return pydantic.TypeAdapter(kind).validate_json(json.dumps(values, default=str))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join([where, *map(str, first["loc"])])
        raise InputError(
            first["msg"][0].lower() + first["msg"][1:], field=place, remedy="See docs/guide/audit.md."
        ) from None
