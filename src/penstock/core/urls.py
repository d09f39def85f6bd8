"""URLs that are safe to show, and addresses that are safe to listen on."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit, urlunsplit


def without_password(url: str) -> str:
    """Mask the password of a URL.

    >>> without_password("postgresql://me:secret@db/shop")
    'postgresql://me:***@db/shop'
    """
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}"))


def is_loopback(host: str) -> bool:
    """Return whether a name or an address means this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
