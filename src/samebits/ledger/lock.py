"""A lock: everything that an answer depends on, written down; and what a difference from it can do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from samebits.errors import InputError
from samebits.ledger.canonical import canonical, digest
from samebits.ledger.environment import MOVING, environment
from samebits.llm import LLM
from samebits.models.load import load_source
from samebits.numerics import VERSION

FORMAT: Final = "samebits-lock-1"
FILE_NAME: Final = "samebits.lock"
# Keys of a server that say where and how much, never what; all others are locked, also those to come.
_FREE_OF_SERVER: Final = frozenset(
    {
        "models",
        "host",
        "port",
        "api_keys_file",
        "api_keys_env",
        "max_choices",
        "request_timeout",
        "drain_timeout",
        "body_limit",
        "log_level",
        "cache",
        "ledger",
    }
)
# Keys of a model in our engine that move no bit (docs/config.md), but under the profile vendor.
_FREE_OF_MODEL: Final = frozenset({"threads", "isa", "max_batch", "chunk", "page_size", "kv_memory", "prefix_cache"})
_PARTS: Final = ("server", "models", "prompts", "environment")


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it was locked.

    Attributes:
        what: path in the lock, as in ``environment.packages.numpy.version``.
        locked, now: the two values as JSON; ``absent`` where there is none.
        moves: whether it can move a bit of an answer.
        why: in words.
    """

    what: str
    locked: str
    now: str
    moves: bool
    why: str


def make_lock(
    server: Mapping[str, Any],
    models: Mapping[str, Mapping[str, Any]],
    prompts: Mapping[str, Path],
    loaded: Callable[[str], LLM],
) -> dict[str, Any]:
    """The lock of what is here now.

    Args:
        server: keys of the server's configuration, with values that JSON has.
        models: name → keys of its configuration.
        prompts: name → file.
        loaded: a model of our engine, by its name in ``models``.

    Raises:
        InputError: a model or a file cannot be used.
    """
    return {
        "lock": FORMAT,
        "contract": VERSION,
        "server": {name: value for name, value in server.items() if name not in _FREE_OF_SERVER},
        "models": {name: _model(keys, name, loaded) for name, keys in models.items()},
        "prompts": {name: _file(path) for name, path in prompts.items()},
        "environment": _environment(),
    }


def _model(keys: Mapping[str, Any], name: str, loaded: Callable[[str], LLM]) -> dict[str, Any]:
    free = frozenset[str]() if keys["profile"] == "vendor" else _FREE_OF_MODEL
    kept = {key: value for key, value in keys.items() if key not in free}
    llm, source = loaded(name), load_source(keys["path"])
    return kept | {
        "fingerprint": llm.fingerprint,
        "weights": source.weights_digest,
        "tokenizer": source.tokenizer.digest,
        "chat_template": source.tokenizer.template_digest,
        "generation_defaults": source.generation_defaults.digest,
    }


def _file(path: Path) -> str:
    try:
        return digest(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", field="prompts", remedy="Name a file.") from error


def _environment() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(canonical(asdict(environment())))
    del found["contract"]
    return found


def write_lock(lock: Mapping[str, Any], path: Path) -> None:
    """Writes a lock, for people and version control: sorted and indented.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        path.write_text(json.dumps(lock, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}", field="file", remedy="Name another.") from error


def read_lock(path: Path) -> dict[str, Any]:
    """Reads a lock.

    Raises:
        InputError: the file cannot be read, or is no lock of this format.
    """
    try:
        lock = json.loads(path.read_bytes(), object_pairs_hook=_once)
        canonical(lock)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}", field="lock", remedy="Make it: samebits lock.") from error
    if not isinstance(lock, dict) or lock.get("lock") != FORMAT:
        raise InputError(f"{path} is no lock of the format {FORMAT}", field="lock", remedy="Make it: samebits lock.")
    for part in _PARTS:
        if not isinstance(lock.get(part), dict):
            raise InputError(f"{path} lacks the part {part}", field="lock", remedy="Make it anew: samebits lock.")
    return lock


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a name stands twice in one object")
    return found


def differences(locked: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Every difference, and whether it can move a bit; in the order of paths."""
    vendor = any(_has_vendor(lock.get("models")) for lock in (locked, now))
    return [
        Difference(".".join(path), _shown(before), _shown(after), *_judged(path, vendor))
        for path, before, after in _leaves(locked, now, ())
    ]


def _has_vendor(models: Any) -> bool:
    each = models.values() if isinstance(models, dict) else ()
    return any(isinstance(model, dict) and model.get("profile") == "vendor" for model in each)


_ABSENT: Final = object()


def _leaves(before: Any, now: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted(before.keys() | now.keys()):
            yield from _leaves(before.get(name, _ABSENT), now.get(name, _ABSENT), (*path, name))
    elif _ABSENT in (before, now) or canonical(before) != canonical(now):
        yield path, before, now


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else canonical(value).decode()


def _judged(path: tuple[str, ...], vendor: bool) -> tuple[bool, str]:
    """Whether a difference can move a bit, and why."""
    part, rest = path[0], path[1:]
    if part == "environment":
        return _judged_environment(rest, vendor)
    if part == "models":
        return _judged_model(rest)
    return {
        "lock": (True, "the lock was written in another format"),
        "contract": (True, "another version of the numerics contract computes other bits"),
        "prompts": (True, "another prompt has another answer"),
        "server": _judged_server(rest),
    }.get(part, (True, "unknown here, and so it may"))


def _judged_model(rest: tuple[str, ...]) -> tuple[bool, str]:
    key = rest[1] if len(rest) > 1 else ""
    return {
        "": (True, "another model answers under this name, or none"),
        "path": (False, "where a model lies moves nothing; its fingerprint tells whether it is the same"),
        "policy": (True, "a policy sets parameters"),
        "weights": (True, "other weights have other logits"),
        "tokenizer": (True, "the same text becomes other ids"),
        "chat_template": (True, "the same conversation becomes another text"),
        "generation_defaults": (True, "requests that leave a parameter open run with another"),
        "profile": (True, "another profile rounds differently"),
        "fingerprint": (True, "something of model, profile or contract is different; see beside it"),
    }.get(key, (True, "the model is configured in another way"))


def _judged_server(rest: tuple[str, ...]) -> tuple[bool, str]:
    if rest[:1] == ("date",):
        return True, "it is part of the prompt where a chat template asks for the date"
    if rest[:1] == ("determinism",):
        return False, "it changes what is promised, and which requests are refused; no bit of an answer"
    return True, "it may set parameters, or choose the model that answers"


def _judged_environment(rest: tuple[str, ...], vendor: bool) -> tuple[bool, str]:
    kind, name = (*rest, "", "")[:2]
    if not kind or (kind == "packages" and not name):
        return True, "without the packages nobody can tell"
    if kind == "packages":
        if name == "samebits":
            return True, "the code that computes answers; the contract's version tells whether bits were meant to move"
        if name in MOVING:
            return True, "it decides on ids of a prompt or of a constrained answer"
        if name == "numpy" and vendor:
            return True, "the vendor profile computes with its BLAS"
        return False, "it computes no bit of an answer"
    if vendor and kind in ("cpu", "isa", "machine", "libc"):
        return True, "the vendor profile promises nothing across machines"
    return False, "the contract gives the same bits on every machine, system and Python"
