"""Keys are read from where they are, and shown nowhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from samebits.audit.targets.keys import ApiKey, read_key
from samebits.errors import InputError

SENTINEL = "sk-sentinel-93df21"


def test_a_key_comes_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_KEY", SENTINEL)
    (tmp_path / "key").write_text(f"{SENTINEL}\n")
    for key in (read_key(env="AUDIT_KEY", file=None), read_key(env=None, file=str(tmp_path / "key"))):
        assert key is not None
        assert key.reveal() == SENTINEL
    assert read_key(env=None, file=None) is None


def test_no_representation_shows_it() -> None:
    key = ApiKey(SENTINEL, "variable X")
    assert SENTINEL not in f"{key} {key!r} {[key]} {vars(type(key))}"
    assert key.scrub(f"Incorrect API key: {SENTINEL}.") == "Incorrect API key: [key]."
    assert SENTINEL.encode() in pickle.dumps(key.reveal()), "the control: the text is there when it is revealed"


@pytest.mark.parametrize(
    ("env", "file", "field"),
    [("NO_SUCH_VARIABLE", None, "key_env"), (None, "no-such-file", "key_file"), ("A", "b", "key_file")],
)
def test_a_missing_key_names_the_field(env: str | None, file: str | None, field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_key(env=env, file=file)
    assert caught.value.field == field


@pytest.mark.parametrize("text", ["", "short", f"{SENTINEL} and more", "schlüssel-mit-umlaut"])
def test_what_is_no_key_is_refused_without_being_shown(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_KEY", text)
    with pytest.raises(InputError) as caught:
        read_key(env="AUDIT_KEY", file=None)
    assert not text or text not in str(caught.value)
