"""Which proxy an address goes by."""

from __future__ import annotations

import pytest

from samebits.audit.targets.proxy import Proxy, proxy_for


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_without_a_variable_there_is_none() -> None:
    assert proxy_for("http://models.test/v1") is None


@pytest.mark.parametrize(
    ("named", "proxy"),
    [
        ("http://p.test:3128", Proxy("http://p.test:3128")),
        ("p.test:3128", Proxy("http://p.test:3128")),
        ("http://me:p%40ss@p.test:3128", Proxy("http://p.test:3128", "me", "p@ss")),
    ],
)
def test_the_one_of_the_scheme(named: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", named)
    assert proxy_for("https://models.test/v1") == proxy
    assert proxy_for("http://models.test/v1") is None
    assert "p@ss" not in repr(proxy_for("https://models.test/v1"))


@pytest.mark.parametrize("excepted", ["models.test", "models.test:8000", "*"])
def test_an_exception_goes_directly(excepted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://p.test:3128")
    assert proxy_for("http://models.test:8000/v1") is not None
    monkeypatch.setenv("no_proxy", excepted)
    assert proxy_for("http://models.test:8000/v1") is None
