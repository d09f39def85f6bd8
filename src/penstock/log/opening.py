"""From a URL to a log: the one place that knows which store belongs to which URL."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from penstock.errors import InvalidUrl
from penstock.log.log import Log
from penstock.stores.base import StatementHook, Store
from penstock.stores.clock import Clock

DEFAULT_URL = "sqlite:///penstock.db"


def open_log(
    url: str | None = None, *, clock: Clock | None = None, hook: StatementHook | None = None, migrate: bool = True
) -> Log:
    """Open a log, and create its schema where it is missing and the role may.

    `url` defaults to $PENSTOCK_URL, else sqlite:///penstock.db. `clock` and `hook` are for tests.
    """
    store = make_store(url or os.environ.get("PENSTOCK_URL") or DEFAULT_URL, clock=clock, hook=hook)
    if migrate:
        try:
            store.migrate()
            if clock is not None:
                store.override_clock()
        except BaseException:
            store.close()
            raise
    return Log(store)


def make_store(url: str, *, clock: Clock | None = None, hook: StatementHook | None = None) -> Store:
    """The store of a URL, not yet connected."""
    if not isinstance(url, str):
        raise InvalidUrl("The URL must be text.")
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from penstock.stores.sqlite.store import SqliteStore

        return SqliteStore(url, clock=clock, hook=hook)
    if scheme in ("postgresql", "postgres"):
        from penstock.stores.postgres.store import PostgresStore

        return PostgresStore(url, clock=clock, hook=hook)
    raise InvalidUrl(f"The scheme {scheme[:40]!r} names no store.")  # not the URL: it may hold a password
