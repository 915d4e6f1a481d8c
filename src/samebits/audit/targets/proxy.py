"""The proxy that the environment names for an address: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, in any case."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass


@dataclass(frozen=True)
class Proxy:
    """A proxy.

    Attributes:
        url: without user and password.
        user, password: those that it asks for; None where it asks for none.
    """

    url: str
    user: str | None = None
    password: str = field(default="", repr=False)


def proxy_for(address: str) -> Proxy | None:
    """The proxy for an address; None where it is reached directly."""
    named = proxy_url(address)
    if named is None:
        return None
    proxy = urlsplit(named)
    url = urlunsplit(proxy._replace(netloc=proxy.netloc.rpartition("@")[2]))
    if proxy.username is None:
        return Proxy(url)
    return Proxy(url, unquote(proxy.username), unquote(proxy.password or ""))


def proxy_url(address: str) -> str | None:
    """The proxy for an address as a URL, with its user and password; None where it is reached directly."""
    parts = urlsplit(address)
    named = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    if not named:
        return None
    return named if "://" in named else f"http://{named}"
