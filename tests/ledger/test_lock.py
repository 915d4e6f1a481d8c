"""Locks: nothing is locked that may differ freely, and every difference is explained."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from samebits.errors import InputError
from samebits.ledger.environment import MOVING, Environment, _files, environment, environment_id
from samebits.ledger.lock import FORMAT, differences, read_lock, write_lock
from samebits.ledger.sbom import bill, containerfile

DIGEST = "sha256:" + "ab" * 32


def lock() -> dict[str, Any]:
    """A lock of one small model, made up."""
    model = dict.fromkeys(("fingerprint", "weights", "tokenizer", "chat_template", "generation_defaults"), DIGEST)
    packages = {name: {"version": "1.0", "digest": DIGEST} for name in (*sorted(MOVING), "numpy", "uvicorn", "pip")}
    return {
        "lock": FORMAT,
        "contract": "samebits-1",
        "server": {"date": "2024-07-26", "determinism": None},
        "models": {"m": {"engine": "embedded", "path": "smollm2", "profile": "bf16", **model}},
        "prompts": {"a.txt": DIGEST},
        "environment": {
            "python": "CPython 3.11.7",
            "system": "linux Debian",
            "machine": "x86_64",
            "libc": "glibc 2.36",
            "cpu": ["avx2"],
            "isa": ["scalar", "avx2"],
            "packages": packages,
        },
    }


def setting(*path: str, value: Any = "changed") -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        target = found
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("path", "moves"),
    [
        (("contract",), True),
        (("server", "date"), True),
        (("server", "determinism"), False),
        (("server", "policies"), True),
        (("models", "m", "weights"), True),
        (("models", "m", "tokenizer"), True),
        (("models", "m", "chat_template"), True),
        (("models", "m", "profile"), True),
        (("models", "m", "fingerprint"), True),
        (("models", "m", "path"), False),
        (("models", "m", "what_is_to_come"), True),
        (("models", "other"), True),
        (("prompts", "a.txt"), True),
        (("prompts", "b.txt"), True),
        (("environment", "python"), False),
        (("environment", "cpu"), False),
        (("environment", "packages", "numpy", "version"), False),
        (("environment", "packages", "tokenizers", "digest"), True),
        (("environment", "packages", "llguidance", "version"), True),
        (("environment", "packages", "samebits", "digest"), True),
        (("environment", "packages", "new"), False),
        (("what_is_to_come",), True),
    ],
)
def test_every_difference_is_named_and_judged(path: tuple[str, ...], moves: bool) -> None:
    now = lock()
    setting(*path)(now)
    [found] = differences(lock(), now)
    assert (found.what, found.moves) == (".".join(path), moves)
    assert found.now == '"changed"'
    assert len(found.why) > 10
    [back] = differences(now, lock())
    assert (back.what, back.moves) == (found.what, moves)


def test_the_same_has_no_differences() -> None:
    assert differences(lock(), lock()) == []


@pytest.mark.parametrize("path", [("environment", "cpu"), ("environment", "packages", "numpy", "version")])
def test_under_the_vendor_profile_the_machine_counts(path: tuple[str, ...]) -> None:
    before, now = lock(), lock()
    for found in (before, now):
        found["models"]["m"]["profile"] = "vendor"
    setting(*path)(now)
    assert [d.moves for d in differences(before, now)] == [True]


def test_a_lock_is_written_and_read(tmp_path: Path) -> None:
    write_lock(lock(), tmp_path / "samebits.lock")
    assert read_lock(tmp_path / "samebits.lock") == lock()
    for text in ("{}", "[]", "x", '{"lock":"other"}'):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(InputError, match="lock"):
            read_lock(tmp_path / "bad")


def test_the_bill_of_materials_is_valid_and_always_the_same() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = bill(lock())
    assert text == bill(lock())
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = {c["name"]: c for c in json.loads(text)["components"]}
    assert found["tokenizers"]["purl"] == "pkg:pypi/tokenizers@1.0"
    assert found["m"]["type"] == "machine-learning-model"
    assert found["m"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    other = lock()
    setting("contract")(other)
    assert bill(other) != text


def test_the_containerfile_pins_everything_and_checks_itself() -> None:
    text = containerfile(lock())
    assert text.count("==1.0") == len(lock()["environment"]["packages"]) - 2  # pip and samebits itself are not pinned
    assert "FROM docker.io/library/python:3.11.7-slim\n" in text
    assert "samebits lock --check --bits" in text
    assert '"--locked-bits"' in text, "an image runs on other machines than the one of its lock"
    assert text.index("ENV PATH=/opt/samebits/bin:$PATH") < text.index("RUN samebits lock")
    assert "--no-deps" in text


def test_the_environment_is_that_of_this_process() -> None:
    found = environment()
    assert isinstance(found, Environment)
    assert found.packages["numpy"].digest is not None
    assert found.packages.keys() >= MOVING
    assert environment_id().startswith("sha256:")


def test_the_digest_of_a_package_does_not_depend_on_where_it_is() -> None:
    here = "a/b.py,sha256=x,1\n../../../bin/a,sha256=y,1\na-1.dist-info/RECORD,,\na-1.dist-info/INSTALLER,sha256=z,4\n"
    there = "a-1.dist-info/RECORD,,\na/b.py,sha256=x,1\n../../../bin/a,sha256=other,1\na/__pycache__/b.pyc,,\n"
    assert _files(here) == _files(there) != _files(here.replace("=x", "=w"))
    assert _files(None) is None


def test_a_file_of_a_moving_package_that_was_changed_is_seen(tmp_path: Path) -> None:
    """What an installer noted says nothing of what somebody did later."""
    (tmp_path / "a.py").write_bytes(b"x = 1\n")
    noted = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    record = f"a.py,sha256={noted},6\na-1.dist-info/RECORD,,\n"
    assert _files(record, tmp_path.joinpath) == _files(record)
    (tmp_path / "a.py").write_bytes(b"x = 2\n")
    changed = _files(record, tmp_path.joinpath)
    (tmp_path / "a.py").unlink()
    assert len({changed, _files(record), _files(record, tmp_path.joinpath)}) == 3


def test_the_packages_here_are_as_they_were_installed() -> None:
    for name in MOVING - {"samebits"}:
        noted = _files(metadata.distribution(name).read_text("RECORD"))
        assert environment().packages[name].digest == noted


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"lock": FORMAT}),
        json.dumps(lock() | {"environment": []}),
        json.dumps(lock() | {"prompts": None}),
        json.dumps(lock() | {"x": float("nan")}),
        json.dumps(lock()).replace('"contract"', '"contract": "other", "contract"'),
        f'{{"lock": "{FORMAT}", "server": ' + "[" * 100_000,
    ],
)
def test_what_is_no_whole_lock_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad").write_text(text)
    with pytest.raises(InputError, match="lock"):
        read_lock(tmp_path / "bad")


def test_a_lock_without_packages_can_tell_nothing() -> None:
    now = lock()
    del now["environment"]["packages"]
    assert [d.moves for d in differences(now, lock())] == [True]
