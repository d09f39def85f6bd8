"""A scratch log: its own schema on PostgreSQL, its own file for SQLite."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit


@contextmanager
def scratch_log(url: str, *, same_disk: bool = False) -> Iterator[str]:
    """Yield the URL of an empty log in the same database, and remove it afterwards in any case.

    For SQLite it is a file in a temporary directory: with `same_disk`, one beside the file of the URL.
    """
    if urlsplit(url).scheme == "sqlite":
        beside = Path(url.removeprefix("sqlite:///")).absolute().parent if same_disk else None
        with TemporaryDirectory(prefix="penstock-scratch-", dir=beside) as folder:
            yield f"sqlite:///{folder}/scratch.db"
        return
    schema = f"penstock_scratch_{secrets.token_hex(4)}"
    parts = urlsplit(url)
    query = {**dict(parse_qsl(parts.query)), "schema": schema}
    try:
        yield urlunsplit(parts._replace(query=urlencode(query)))
    finally:
        _drop(url, schema)


def _drop(url: str, schema: str) -> None:
    import psycopg
    from psycopg import sql

    from penstock.stores.postgres.store import split_url

    with psycopg.connect(split_url(url)[0], autocommit=True) as connection:
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema)))
