"""URLs that may be shown."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def without_password(url: str) -> str:
    """The URL with its password blotted out.

    >>> without_password("postgresql://me:secret@db/shop")
    'postgresql://me:***@db/shop'
    """
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}"))
