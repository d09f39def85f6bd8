"""Open a log: the one place that maps a URL to a store."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from penstock.errors import InvalidUrl, StoreUnavailable
from penstock.log.log import Log
from penstock.stores.base import Clock, StatementHook, Store

DEFAULT_URL = "sqlite:///penstock.db"


def url_of(url: str | None) -> str:
    """Return the given URL, else $PENSTOCK_URL, else sqlite:///penstock.db."""
    return url or os.environ.get("PENSTOCK_URL") or DEFAULT_URL


def open_log(
    url: str | None = None,
    *,
    clock: Clock | None = None,
    hook: StatementHook | None = None,
    migrate: bool = True,
    connections: int | None = None,
    patience_seconds: float | None = None,
) -> Log:
    """Open a log; create or upgrade its schema if needed and permitted.

    `url` defaults to $PENSTOCK_URL, else sqlite:///penstock.db. `connections` is the most that it keeps to a server,
    and `patience_seconds` is how long a call waits for one (30). `clock` and `hook` are for tests.
    """
    store = make_store(url_of(url), clock=clock, hook=hook, connections=connections, patience_seconds=patience_seconds)
    if migrate:
        try:
            store.migrate()
            if clock is not None:
                store.override_clock()
        except BaseException:
            store.close()
            raise
    return Log(store)


def open_existing(url: str | None = None, *, migrate: bool = True) -> Log:
    """Open an existing log and upgrade its schema; a mistyped URL creates nothing."""
    store = make_store(url_of(url))
    try:
        if not store.exists():
            raise StoreUnavailable(f"There is no log at {store.safe_url}; run `penstock init`.")
        with store.transaction(write=False) as tx:
            tx.one("tally.last")  # any table will do: raises SchemaMissing where there is none
        if migrate:
            store.migrate()
    except BaseException:
        store.close()
        raise
    return Log(store)


def preload_postgres() -> None:
    """Load what logs in PostgreSQL need, for the processes that are forked from this one."""
    from penstock.stores import blocks
    from penstock.stores.postgres import arrow, copy_text, home, schema, sight, store  # noqa: F401

    blocks.load("postgres")


def initialize(url: str | None = None) -> list[str]:
    """Create or upgrade the schema; returns the migrations that ran."""
    store = make_store(url_of(url))
    try:
        return store.migrate()
    finally:
        store.close()


def schema_script(url: str | None = None) -> tuple[str, str]:
    """Return the name of the schema and its complete SQL script for PostgreSQL."""
    from penstock.stores.postgres.store import split_url  # first: its error names the missing extra
    from penstock.stores.postgres.schema import script  # isort: skip

    known = url_of(url)
    schema = split_url(known)[1] if known.startswith("postgres") else "penstock"
    return schema, script(schema)


def make_store(
    url: str,
    *,
    clock: Clock | None = None,
    hook: StatementHook | None = None,
    connections: int | None = None,
    patience_seconds: float | None = None,
) -> Store:
    """Make the store of a URL, not yet connected."""
    if not isinstance(url, str):
        raise InvalidUrl("The URL must be text.")
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from penstock.stores.sqlite.store import SqliteStore

        return SqliteStore(url, clock=clock, hook=hook)
    if scheme in ("postgresql", "postgres"):
        from penstock.stores.postgres.store import PostgresStore

        return PostgresStore(url, clock=clock, hook=hook, connections=connections, patience_seconds=patience_seconds)
    raise InvalidUrl(f"There is no store for the scheme {scheme[:40]!r}.")  # not the URL: it may hold a password
