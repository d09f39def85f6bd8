"""`ValkeyStream`: ingest from a stream of a Valkey or Redis server, with a consumer group."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from penstock.connect import entry_fields
from penstock.connect.source_options import (
    check_count,
    check_positive,
    check_source_name,
    check_start,
    check_text_option,
    default_type,
)
from penstock.connect.valkey_reader import ValkeyReader
from penstock.core import limits
from penstock.core.entry import Entry
from penstock.errors import InvalidSource
from penstock.log.ingest import Ingests


class ValkeyStream:
    """The entries of a stream, as a consumer of a group; the group is created if it is missing.

    Every live ingester looks for entries that have been pending for `min_idle_seconds`, and takes them over. An entry
    that is delivered again is recognised until `remember_days` after it was acknowledged, even if its event was pruned.

    `consumer` is the name within the group (default: the host's), under which an ingester finds what it had not
    acknowledged when it was stopped. `start` is where a new group begins, "beginning" or "end". `type` is the type of
    events whose entries name none; default: `<stream>.entry`. `batch` entries are stored in one transaction.
    """

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        group: str = "penstock",
        min_idle_seconds: float = limits.MIN_IDLE_SECONDS,
        start: str = "beginning",
        remember_days: float = limits.REMEMBER_DAYS,
        consumer: str | None = None,
        type: str | None = None,
        name: str | None = None,
        batch: int = limits.INGEST_BATCH,
        timeout_seconds: float = 10.0,
    ) -> None:
        self.stream = check_text_option(stream, "stream")
        self.group = check_text_option(group, "group")
        self.consumer = check_text_option(consumer or socket.gethostname(), "consumer")
        self.min_idle_seconds = check_positive(min_idle_seconds, "min_idle_seconds", limits.LEASE_SECONDS_MOST)
        self.remember_days = check_positive(remember_days, "remember_days", limits.REMEMBER_DAYS_MOST)
        self.timeout_seconds = check_positive(timeout_seconds, "timeout_seconds", 3_600)
        self.batch = check_count(batch, "batch", limits.INGEST_BATCH)
        self.start = check_start(start)
        self.type = default_type(type, stream)
        self._url = url
        name = check_source_name(name)
        self.source = name or f"valkey:{_place(url)}:{stream}:{group}"
        self.name = name or f"valkey {_place(url)} {stream}/{group}"

    def __repr__(self) -> str:
        return f"<ValkeyStream {self.name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a source may hold a password, and is not pickled: declare it in a module")

    def open(self, ingests: Ingests) -> ValkeyReader:
        """Connect, and create the group if it is missing."""
        return ValkeyReader(self, self._url, ingests)

    def fields_of(self, entry: Entry) -> Mapping[str, Any]:
        """Return the event of an entry."""
        return entry_fields.of_fields(entry, self.type)


def _place(url: str) -> str:
    """Return the server and the database of a URL; nothing of its user, password or options."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except (ValueError, AttributeError, TypeError):
        parts = None
    if parts is None or parts.scheme not in ("valkey", "valkeys", "redis", "rediss", "unix"):
        raise InvalidSource("The URL of a Valkey server is valkey://host:port/database, valkeys://… or unix://path.")
    if parts.scheme == "unix":
        database = _database(parts.query, "")
        return parts.path if database == "0" else f"{parts.path}/{database}"
    return f"{parts.hostname or 'localhost'}:{port or 6379}/{_database(parts.query, parts.path)}"


def _database(query: str, path: str) -> str:
    """Return the number of the database that the client would choose; anything else may be a piece of a password."""
    found = parse_qs(query).get("db", [path.strip("/") or "0"])[0]
    if not (found.isascii() and found.isdigit()):
        raise InvalidSource(
            "The database of a Valkey server is a number: valkey://host:port/0. A user and a password in the URL are "
            "percent-encoded."
        )
    return str(int(found))
