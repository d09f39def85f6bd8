"""URLs that are safe to show, and addresses that are safe to listen on."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

_NAMED: Final = r"(password|passwd|secret|api[_-]?key|token)"  # also at the end of a longer name
_VALUE: Final = r"('[^']*'|\"[^\"]*\"|[^\s,;&)'\"]+)"
_SECRETS: Final = (  # none of them takes long, however long the text
    (re.compile(r"(://[^/\s:@'\"]{0,255}):[^@\s'\"]{0,2000}@"), r"\1:***@"),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), r"\1 ***"),
    (re.compile(r"\bpst_[A-Za-z0-9_-]+"), "pst_***"),
    (re.compile(_NAMED + r"(['\"]?\s*[=:]\s*)" + _VALUE, re.IGNORECASE), r"\1\2***"),
)


def without_secrets(text: str) -> str:
    """Mask what looks like a secret in a text that is logged: passwords of URLs and settings, tokens.

    >>> without_secrets("no route to postgresql://me:hunter2@db/shop, password=hunter2")
    'no route to postgresql://me:***@db/shop, password=***'
    >>> without_secrets("PGPASSWORD=hunter2, access_token: hunter2")
    'PGPASSWORD=***, access_token: ***'
    """
    for pattern, masked in _SECRETS:
        text = pattern.sub(masked, text)
    return text


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
