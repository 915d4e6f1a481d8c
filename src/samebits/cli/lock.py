"""``samebits lock``: write down everything that answers depend on, and compare with it later."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samebits.cli import EXIT_DIFFERENCE
from samebits.counted import counted
from samebits.errors import InputError

if TYPE_CHECKING:
    from samebits.api.config import ServerConfig
    from samebits.ledger.lock import Difference
    from samebits.llm import LLM


def lock(
    model: Annotated[
        str | None, typer.Argument(help="A GGUF file, a Hugging Face folder, or smollm2.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A server's file, instead of a model.", show_default=False)
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Of the model; bf16.", show_default=False)] = None,
    prompts: Annotated[
        list[Path] | None, typer.Option(help="A file, or a folder of files; may be repeated.", show_default=False)
    ] = None,
    file: Annotated[Path, typer.Option(help="The lock.")] = Path("samebits.lock"),
    check: Annotated[bool, typer.Option("--check", help="Compare with the lock, and write nothing.")] = False,
    bits: Annotated[bool, typer.Option("--bits", help="With --check: count only what can move a bit.")] = False,
    sbom: Annotated[
        Path | None, typer.Option(help="Write a CycloneDX bill of materials too.", show_default=False)
    ] = None,
    containerfile: Annotated[
        Path | None, typer.Option(help="Write a Containerfile of this environment too.", show_default=False)
    ] = None,
) -> None:
    """Lock models, prompts, parameters, packages and machine; or explain every difference from the lock.

    Exit codes: 0 written, or no difference; 1 a difference; 2 usage.
    """
    from samebits.ledger.lock import differences, read_lock, write_lock

    if (model is None) == (config is None):
        raise InputError("or --config is needed, and not both", field="model", remedy="Give one of the two.")
    if bits and not check:
        raise InputError("is for --check", field="bits", remedy="Give --check too.")
    locked = read_lock(file) if check else None
    settings = _settings(model, config, profile)
    now = lock_of(settings, prompts or [])
    for path, make in ((sbom, _bill), (containerfile, _containerfile)):
        if path is not None:
            path.write_text(make(now), encoding="utf-8")
    if locked is None:
        write_lock(now, file)
        packages = counted(len(now["environment"]["packages"]), "package")
        typer.echo(f"{file}: {counted(len(settings.models), 'model')}, {packages}")
        return
    found = differences(locked, now)
    for difference in found:
        typer.echo(told(difference))
    refused = [difference for difference in found if difference.moves or not bits]
    moving = sum(difference.moves for difference in found)
    typer.echo(f"{counted(len(found), 'difference')}, {moving} of them can move bits")
    if refused:
        raise typer.Exit(EXIT_DIFFERENCE)


def told(difference: Difference) -> str:
    """A difference in a line or two."""
    can = "CAN MOVE BITS" if difference.moves else "moves no bit"
    return f"{difference.what}: {difference.locked} locked, {difference.now} now\n  {can}: {difference.why}"


def lock_of(settings: ServerConfig, prompts: list[Path], llms: Mapping[str, LLM] | None = None) -> dict[str, Any]:
    """The lock of a configuration.

    Args:
        llms: models that are loaded already; others are loaded, and closed again.
    """
    from samebits.api.app import load_models
    from samebits.ledger.lock import make_lock

    loaded = load_models(settings) if llms is None else llms
    models = {name: _plain(dataclasses.asdict(keys)) for name, keys in settings.embedded.items()}
    # A ledger's address may hold a password, and moves nothing.
    left_out = ("models", "ledger")
    server = _plain(
        {key.name: getattr(settings, key.name) for key in dataclasses.fields(settings) if key.name not in left_out}
    )
    if settings.upstreams:  # what they compute with is theirs; how they are asked is ours
        server["upstreams"] = _plain({name: dataclasses.asdict(keys) for name, keys in settings.upstreams.items()})
    try:
        return make_lock(server, models, dict(_files(prompts)), loaded.__getitem__)
    finally:
        if llms is None:
            for llm in loaded.values():
                llm.close()


def check_locked(file: Path, settings: ServerConfig, llms: Mapping[str, LLM], *, bits: bool = False) -> None:
    """Refuses to go on where anything differs from a lock; its prompts are not looked at. Differences are told.

    Args:
        bits: refuse only what can move a bit.

    Raises:
        InputError: something does, and what.
    """
    from samebits.ledger.lock import differences, read_lock

    locked = read_lock(file)
    now = lock_of(settings, [], llms) | {"prompts": locked["prompts"]}
    found = differences(locked, now)
    for difference in found:
        typer.echo(told(difference), err=True)
    if refused := [difference for difference in found if difference.moves or not bits]:
        raise InputError(
            f"{counted(len(refused), 'difference')} from {file}",
            field="locked",
            remedy="Undo them, or lock anew: samebits lock.",
        )


def _settings(model: str | None, config: Path | None, profile: str | None) -> ServerConfig:
    from samebits.api.config import make_config, name_of, read_config

    if config is not None:
        if profile is not None:
            raise InputError("is for one model", field="profile", remedy="Put it into the file.")
        return make_config(read_config(config))
    assert model is not None
    keys = {"path": model} | ({"profile": profile} if profile is not None else {})
    return make_config({"models": {name_of(model): keys}})


def _files(paths: list[Path]) -> list[tuple[str, Path]]:
    found = []
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path} holds no file", field="prompts", remedy="Name a file, or another folder.")
        found += [(p.as_posix(), p) for p in inside]
    return found


def _plain(value: Any) -> Any:
    """A value of a configuration as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime.date) else value


def _bill(lock: Mapping[str, Any]) -> str:
    from samebits.ledger.sbom import bill

    return bill(lock)


def _containerfile(lock: Mapping[str, Any]) -> str:
    from samebits.ledger.sbom import containerfile

    return containerfile(lock)
