"""Where a request goes: a URL, taken apart once."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

_SAFE = "/%:@!$&'()*+,;=~-._?"


class Place(NamedTuple):
    """A URL; `address` is set if the host's name was looked up and must not be again."""

    url: str
    secure: bool
    host: str
    port: int
    target: str  # the path and the query
    authorization: str | None  # from a user and a password in the URL
    address: str | None = None

    @property
    def origin(self) -> tuple[bool, str, int]:
        """To whom a request goes: an authorization is for one origin only."""
        return self.secure, self.host, self.port

    @property
    def connected_to(self) -> Any:
        """The URL to connect to: with the address, if that is set, in place of the name."""
        return _url(self.secure, self.address or self.host, self.port, self.target)

    @property
    def host_header(self) -> bytes:
        """The host as it stands in a request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}").encode()

    @property
    def secrets(self) -> list[str]:
        """What nobody should read in an error, though a server may say it again."""
        path, _, query = self.target.partition("?")
        found = [self.target, path, query, *(value for _, value in parse_qsl(query))]
        if self.authorization is not None:
            parts = urlsplit(self.url)
            found += [self.authorization.partition(" ")[2], unquote(parts.password or parts.username or "")]
        return found

    @staticmethod
    @lru_cache(maxsize=1_024)
    def of(url: str) -> Place:
        """Take a URL apart; `ValueError` if it cannot be used."""
        if not url.isprintable() or " " in url:
            raise ValueError("a URL has no spaces and no line breaks")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a URL begins with http:// or https:// and names a host")
        secure = parts.scheme == "https"
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        user = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            user = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return Place(url, secure, host, parts.port or (443 if secure else 80), path, user)


@lru_cache(maxsize=1_024)
def _url(secure: bool, host: str, port: int, target: str) -> Any:
    from yarl import URL

    where = f"[{host}]" if ":" in host else host
    return URL(f"{'https' if secure else 'http'}://{where}:{port}{target}", encoded=True)
