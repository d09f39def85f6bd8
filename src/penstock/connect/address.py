"""The URL of a target: checked where it enters, and shown without anything that may be secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import InvalidPublisher


def shown(url: Any, schemes: Sequence[str]) -> str:
    """Return a URL as it may stand in logs: its scheme, host and port; `InvalidPublisher` if it is not one of these.

    Users, paths and queries are left out: all of them carry tokens somewhere. The error does not show the URL either.

    >>> shown("valkey://me:secret@cache:6379/0?password=x", ["valkey"])
    'valkey://cache:6379'
    """
    wanted = " or ".join(f"{scheme}://…" for scheme in schemes)
    if not isinstance(url, str) or not url.isprintable():
        raise InvalidPublisher(f"The URL of the target is text: {wanted}.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidPublisher(
            f"The URL of the target cannot be read; a user and a password in it are percent-encoded. Wanted: {wanted}."
        ) from None
    if parts.scheme not in schemes or not host or " " in host:
        raise InvalidPublisher(f"The URL of the target begins with {wanted}, and names a host.")
    if "@" in url.partition("://")[2].partition(parts.netloc)[2] and not parts.scheme.startswith("http"):
        # What stands before a `/`, `?` or `#` in a password would be taken for a host, and shown.
        raise InvalidPublisher(
            "The URL of the target has an @ behind its host: a user and a password are percent-encoded."
        )
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + ("" if port is None else f":{port}")
