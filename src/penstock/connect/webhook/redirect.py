"""Where a redirect may lead: to public addresses only, unless private ones are allowed."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit, urlunsplit


class Refused(Exception):
    """A redirect that is not followed."""


class Place(NamedTuple):
    """Where to send a request: the URL, and the same with the address that was checked."""

    url: str
    at: str | None = None  # None: look the name up

    @property
    def name(self) -> str:
        """The name of the host."""
        return urlsplit(self.url).hostname or ""

    @property
    def host(self) -> str:
        """The name of the host as it stands in the request."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


async def follow(base: str, location: str, *, allow_private: bool) -> Place:
    """Return where a redirect leads; `Refused` if that is private, or not HTTP.

    The address is looked up once and then used, so that the name cannot mean another one a moment later.
    """
    url = urljoin(base, location)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise Refused(f"a redirect leads to {parts.scheme or 'nowhere'}")
    if urlsplit(base).scheme == "https" and parts.scheme != "https":
        raise Refused("a redirect leads away from https")
    if allow_private:
        return Place(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Refused(f"a redirect leads to {parts.hostname}, which is unknown") from error
    addresses = [str(one[4][0]) for one in found]
    if not all(is_public(one) for one in addresses):
        raise Refused(f"a redirect leads to {parts.hostname}, a private address")
    address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    return Place(url, urlunsplit(parts._replace(netloc=f"{address}:{port}")))


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet.

    >>> is_public("10.0.0.1"), is_public("::ffff:127.0.0.1"), is_public("8.8.8.8")
    (False, False, True)
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    one = mapped or found
    return one.is_global and not one.is_multicast
