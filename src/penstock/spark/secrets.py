"""Keep passwords out of what Spark stores, shows or logs: they go to the workers in their environment."""

from __future__ import annotations

import hashlib
import os
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit


def hide(spark: Any, url: str) -> str:
    """Return the URL without its password; pass that to the session's Python workers in their environment."""
    safe, password = _split(url)
    if password is not None:
        name = _variable(safe)
        spark.sparkContext.environment[name] = password
        os.environ[name] = password  # for code that runs on the driver
    return safe


def reveal(url: str) -> str:
    """Return the URL with the password that `hide` removed; works in workers and on the driver."""
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
