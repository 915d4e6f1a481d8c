"""``samebits serve``: an OpenAI-compatible server."""

from __future__ import annotations

import logging
import time
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from samebits.api.config import ModelConfig, ServerConfig, make_config, name_of, read_config
from samebits.errors import InputError

_KEYS = {key.name: key for kind in (ModelConfig, ServerConfig) for key in fields(kind)}
# Flags are for a server with one model; what is about several, or has sections of its own, stands in the file.
_FILE_ONLY = frozenset({"engine", "path", "models", "failover", "stronger", "policies", "tenants", "cache", "ledger"})
_MODEL_KEYS = tuple(key.name for key in fields(ModelConfig) if key.name not in _FILE_ONLY | {"policy"})


def _flag(name: str, **options: Any) -> Any:
    """The option of a configuration key, with the meaning and the default that the key has."""
    key = _KEYS[name]
    default = "" if key.default is None else f" ({str(key.default).lower()})"
    return typer.Option(help=f"{key.metadata['meaning']}{default}", show_default=False, **options)


def _true_or_false(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InputError(f"{text!r} is neither true nor false", field=name, remedy="Give one of them.")
    return text == "true"


def serve(
    model: Annotated[
        str | None, typer.Argument(help="A GGUF file, a Hugging Face folder, or smollm2.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with these names; flags win", show_default=False)
    ] = None,
    host: Annotated[str | None, _flag("host")] = None,
    port: Annotated[int | None, _flag("port")] = None,
    api_keys_file: Annotated[str | None, _flag("api_keys_file")] = None,
    api_keys_env: Annotated[str | None, _flag("api_keys_env")] = None,
    determinism: Annotated[str | None, _flag("determinism")] = None,
    policy: Annotated[str | None, _flag("policy")] = None,
    date: Annotated[str | None, _flag("date")] = None,
    max_choices: Annotated[int | None, _flag("max_choices")] = None,
    request_timeout: Annotated[float | None, _flag("request_timeout")] = None,
    drain_timeout: Annotated[float | None, _flag("drain_timeout")] = None,
    body_limit: Annotated[int | None, _flag("body_limit")] = None,
    log_level: Annotated[str | None, _flag("log_level")] = None,
    profile: Annotated[str | None, _flag("profile")] = None,
    threads: Annotated[int | None, _flag("threads")] = None,
    isa: Annotated[str | None, _flag("isa")] = None,
    max_batch: Annotated[int | None, _flag("max_batch")] = None,
    chunk: Annotated[int | None, _flag("chunk")] = None,
    page_size: Annotated[int | None, _flag("page_size")] = None,
    kv_memory: Annotated[int | None, _flag("kv_memory")] = None,
    prefix_cache: Annotated[str | None, _flag("prefix_cache", metavar="<bool>")] = None,
    locked: Annotated[
        Path | None, typer.Option(help="Refuse to start where anything differs from this lock", show_default=False)
    ] = None,
    locked_bits: Annotated[
        bool, typer.Option("--locked-bits", help="With --locked: refuse only what can move a bit, and tell the rest")
    ] = False,
) -> None:
    """Serve models over HTTP, with OpenAI's API."""
    start = time.perf_counter()
    flags = {name: value for name, value in locals().items() if name in _KEYS and value is not None}
    if prefix_cache is not None:
        flags["prefix_cache"] = _true_or_false("prefix_cache", prefix_cache)
    values = {} if config is None else read_config(config)
    settings = make_config(_merged(values, model, flags))
    if locked_bits and locked is None:
        raise InputError("is for --locked", field="locked_bits", remedy="Name the lock by --locked.")

    _log(settings.log_level)
    from samebits.api.auth import read_api_keys

    keys = read_api_keys(settings)

    from stamina.instrumentation import set_on_retry_hooks

    from samebits.api.app import load_models
    from samebits.api.server import listen, make_server, url_of

    set_on_retry_hooks(())  # they log a name without a reason; upstreams say themselves what is sent again, and why
    with listen(settings) as sock:

        def ready() -> None:
            profiles = {name: m.profile for name, m in settings.embedded.items()}
            profiles |= {name: f"{m.api} upstream" for name, m in settings.upstreams.items()}
            names = ", ".join(f"{name} ({profiles[name]})" for name in settings.models)
            seconds = time.perf_counter() - start
            typer.echo(f"samebits: {names} at {url_of(sock)}/v1 after {seconds:.1f} s", err=True)

        llms = load_models(settings)
        if locked is not None:
            from samebits.cli.lock import check_locked

            check_locked(locked, settings, llms, bits=locked_bits)
        make_server(settings, llms, keys, ready).run(sockets=[sock])


def _log(level: str) -> None:
    """Messages of samebits from a level on, with their times. Those of libraries stay as they are: what they tell at
    lower levels may be what was asked, or a header.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours = logging.getLogger("samebits")
    ours.setLevel(level.upper())
    ours.handlers = [handler]


def _merged(values: dict[str, Any], model: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """The keys of the file, over which those of the command line win."""
    of_model = {name: flags.pop(name) for name in _MODEL_KEYS if name in flags}
    merged = values | flags
    if model is not None:
        merged["models"] = {name_of(model): {"path": model}}
    models = merged.setdefault("models", {})
    if of_model:
        if not isinstance(models, dict) or len(models) != 1:
            raise InputError(
                "is for one model", field=next(iter(of_model)), remedy="Name one model, or put it into the file."
            )
        [(name, keys)] = models.items()
        merged["models"] = {name: (keys or {}) | of_model}
    return merged
