"""``samebits serve``: an OpenAI-compatible server."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from samebits.api.config import ModelConfig, ServerConfig, make_config, read_config

_KEYS = {key.name: key for kind in (ModelConfig, ServerConfig) for key in fields(kind)}


def _flag(name: str) -> Any:
    """The option of a configuration key: its meaning and its default come from there."""
    key = _KEYS[name]
    shown = False if key.default is None else str(key.default)
    return typer.Option(help=key.metadata["meaning"].capitalize() + ".", show_default=shown)


def serve(
    model: Annotated[str | None, typer.Argument(help="A GGUF file, a Hugging Face folder, or smollm2.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with the same names; flags win.")] = None,
    host: Annotated[str | None, _flag("host")] = None,
    port: Annotated[int | None, _flag("port")] = None,
) -> None:
    """Serve models over HTTP with OpenAI's API."""
    start = time.perf_counter()
    values = {} if config is None else read_config(config)
    if model is not None:
        name = Path(model).name.removesuffix(".gguf")
        values["models"] = {name: {"path": model}}
    values |= {k: v for k, v in {"host": host, "port": port}.items() if v is not None}
    settings = make_config(values)
    from samebits.api.app import load_models
    from samebits.api.server import serve as run

    def ready(url: str) -> None:
        seconds = time.perf_counter() - start
        typer.echo(f"samebits: {', '.join(settings.models)} at {url}/v1, ready after {seconds:.1f} s", err=True)

    run(settings, load_models(settings), ready)
