"""No password travels in what Spark stores, shows or logs: it goes to the workers in their environment."""

from __future__ import annotations

import hashlib
import os
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit


def hide(spark: Any, url: str) -> str:
    """The URL without its password, which the session's Python workers get in their environment."""
    safe, password = _split(url)
    if password is not None:
        name = _variable(safe)
        spark.sparkContext.environment[name] = password
        os.environ[name] = password  # what runs on the driver looks here, too
    return safe


def reveal(url: str) -> str:
    """The URL with the password that `hide` has put aside, in a worker or here."""
    password = os.environ.get(_variable(url))
    if password is None:
        return url
    parts = urlsplit(url)
    name, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{name}:{quote(password, safe='')}{at}{host}"))


def _split(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    if parts.password is None:
        return url, None
    host = parts.netloc.rpartition("@")[2]
    name = parts.netloc.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{name}@{host}")), unquote(parts.password)


def _variable(safe_url: str) -> str:
    return f"PENSTOCK_PASSWORD_{hashlib.sha256(safe_url.encode()).hexdigest()[:12].upper()}"
