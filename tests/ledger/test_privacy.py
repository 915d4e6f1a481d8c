"""What of requests and answers is stored, and what can still be proved of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.conftest import make_entry

from samebits.errors import InputError
from samebits.ledger import Entry, Ledger, ModelRef, Privacy, public_url
from samebits.ledger.canonical import canonical, digest
from samebits.ledger.privacy import DEFAULT_PATTERNS
from samebits.ledger.spelled import number

# A sentinel of each kind that the standard patterns know.
SECRETS = {
    "email": "jane.doe@example.org",
    "api_key": "sk-test-4242424242424242",
    "aws_key": "AKIAIOSFODNN7EXAMPLE",
    "bearer": "Bearer abcdef0123456789",
    "secret": "aws_secret_access_key = 'wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY'",
    "card": "4111 1111 1111 1111",
    "private_key": "-----BEGIN PRIVATE KEY-----\nMIIBVgIBADANBgkq\n-----END PRIVATE KEY-----",
    "url_password": "https://jane:hunter2hunter2@example.org/",
}
CORES = {
    **SECRETS,
    "bearer": "abcdef0123456789",
    "secret": "wJalrXUtnFEMI",
    "private_key": "MIIBVgIBADANBgkq",
    "url_password": "hunter2hunter2",
}


def entry_with(secret: str) -> Entry:
    """The secret at every place that a caller can reach."""
    tokens = {"content": [{"token": secret, "bytes": list(secret.encode()), "logprob": -1.0}]}
    return make_entry(
        model=ModelRef(asked=f"model {secret}", name="m"),
        request={
            "messages": [{"role": "user", "content": [{"type": "text", "text": f"my {secret}, please"}]}],
            "metadata": {secret: secret},
            "stop": [secret],
        },
        params={"stop": {"value": [secret], "origin": "request"}, "temperature": {"value": 0.5, "origin": "request"}},
        answer={"choices": [{"message": {"content": f"it is {secret}."}, "logprobs": tokens}]},
        error={"type": "invalid_request_error", "code": "bad_value", "message": f"{secret} is wrong"},
    )


def stored(url: str, entry: Entry, privacy: Privacy) -> tuple[dict[str, Any], bytes]:
    """The body, and all bytes of the files."""
    with Ledger.open(url, privacy=privacy) as ledger:
        [record] = ledger.append([entry])
    folder = Path(url.removeprefix("sqlite:///")).parent
    return json.loads(record.body or b""), b"".join(path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("mode", ["digest-only", "redacted"])
def test_a_secret_is_nowhere(sqlite_url: str, mode: Any, kind: str) -> None:
    entry = entry_with(SECRETS[kind])
    body, files = stored(sqlite_url, entry, Privacy(mode))
    assert CORES[kind].encode() not in files
    assert CORES[kind].encode("unicode_escape") not in files
    # Who has the full texts can show that they are what was asked and answered.
    for name in ("request", "answer", "error"):
        assert body["digests"][name] == digest(canonical(getattr(entry, name)))
    assert body["params"]["temperature"]["value"] == 0.5


@pytest.mark.parametrize("kind", SECRETS)
def test_negative_control_full_stores_it(sqlite_url: str, kind: str) -> None:
    entry = entry_with(SECRETS[kind])
    body, files = stored(sqlite_url, entry, Privacy("full"))
    assert json.dumps(CORES[kind], ensure_ascii=False)[1:-1].encode() in files
    assert body["request"] == entry.request
    assert body["answer"] == entry.answer


def test_digest_only_keeps_what_is_no_text(sqlite_url: str) -> None:
    body, _ = stored(sqlite_url, entry_with("x y z"), Privacy("digest-only"))
    assert (body["request"], body["answer"]) == (None, None)
    assert body["error"] == {"type": "invalid_request_error", "code": "bad_value"}
    assert body["params"]["stop"]["value"] == {"digest": digest(canonical(["x y z"]))}
    assert body["privacy"] == "digest-only"


def test_redacted_keeps_the_rest(sqlite_url: str) -> None:
    body, _ = stored(sqlite_url, entry_with(SECRETS["email"]), Privacy("redacted"))
    assert body["request"]["messages"][0]["content"][0]["text"] == "my [redacted:email], please"
    assert body["request"]["metadata"] == {"[redacted:email]": "[redacted:email]"}
    assert body["answer"]["choices"][0]["message"]["content"] == "it is [redacted:email]."
    assert set(body["answer"]["choices"][0]["logprobs"]) == {"digest"}  # token by token no pattern sees it
    assert body["model"]["asked"] == "model [redacted:email]"


def test_token_ids_are_a_text_too(sqlite_url: str) -> None:
    entry = make_entry(request={"prompt": [72, 101, 108, 108, 111]}, answer={"choices": [{"token_ids": [1, 2]}]})
    body, _ = stored(sqlite_url, entry, Privacy("redacted"))
    assert body["request"]["prompt"] == {"digest": digest(canonical([72, 101, 108, 108, 111]))}
    assert set(body["answer"]["choices"][0]["token_ids"]) == {"digest"}


def test_patterns_of_ones_own_replace_the_standard_ones(sqlite_url: str) -> None:
    privacy = Privacy("redacted", {"case": r"case-\d+"})
    entry = make_entry(request={"prompt": "case-17 of a@example.org", "metadata": {"case-1": 1, "case-2": 2}})
    body, _ = stored(sqlite_url, entry, privacy)
    assert body["request"]["prompt"] == "[redacted:case] of a@example.org"
    assert body["request"]["metadata"] == {"[redacted:case]": 1, "[redacted:case]#2": 2}  # none is lost


def test_a_number_can_be_a_secret(sqlite_url: str) -> None:
    body, _ = stored(
        sqlite_url, make_entry(request={"card": 4111111111111111, "n": 3, "on": True}), Privacy("redacted")
    )
    assert body["request"] == {"card": "[redacted:card]", "n": 3, "on": True}
    longer = {"a": number("4111111111111111.25"), "b": number("0.333333333333333333"), "c": 0.5}
    body, _ = stored(sqlite_url, make_entry(request=longer), Privacy("redacted"))
    assert body["request"] == {"a": "[redacted:card].25", "b": "0.[redacted:card]", "c": 0.5}
    assert body["request_form"] is None


@pytest.mark.parametrize(
    ("mode", "patterns", "field"),
    [
        ("none", DEFAULT_PATTERNS, "ledger.privacy"),
        ("redacted", {"a": "("}, "ledger.patterns.a"),
        ("redacted", {"a": "x*"}, "ledger.patterns.a"),
        ("redacted", {"a b": "x"}, "ledger.patterns"),
    ],
)
def test_a_wrong_policy_is_refused(mode: Any, patterns: dict[str, str], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Privacy(mode, patterns)
    assert caught.value.field == field


@pytest.mark.parametrize("mode", ["full", "digest-only", "redacted"])
def test_what_is_nested_too_deeply_is_refused(sqlite_url: str, mode: Any) -> None:
    with Ledger.open(sqlite_url, privacy=Privacy(mode)) as ledger:
        ledger.append([make_entry(request={"x": nested(50)})])
        with pytest.raises(InputError, match="nested too deeply"):
            ledger.append([make_entry(request={"x": nested(5000)})])


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_base_url_with_credentials_is_refused_and_not_shown() -> None:
    for url in ("https://u:hunter2@h/v1", "https://h/v1?key=hunter2", "https://h/v1#hunter2"):
        with pytest.raises(InputError) as caught:
            make_entry(model=ModelRef(asked="m", base_url=url))
        assert "hunter2" not in str(caught.value)
        assert public_url(url) == "https://h/v1"
        assert make_entry(model=ModelRef(asked="m", base_url=public_url(url)))
    assert public_url("http://[::1]:8000/v1") == "http://[::1]:8000/v1"


def test_an_error_of_the_database_shows_no_values(sqlite_url: str) -> None:
    from samebits.errors import LedgerError

    with Ledger.open(sqlite_url) as ledger:
        with ledger.engine.connect() as connection:
            connection.exec_driver_sql("ALTER TABLE records RENAME TO gone")
            connection.commit()
        with pytest.raises(LedgerError) as caught:
            ledger.append([entry_with("sentinel-7431")])
    assert "sentinel" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
