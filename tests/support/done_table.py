"""The table `done`, into which handlers insert a row for every event."""

from __future__ import annotations

from tests.support.raw_sql import raw


def create_done_table(url: str) -> None:
    with raw(url) as sql:
        sql(
            "create table done (id integer primary key, n bigint not null, name text)"
            if url.startswith("sqlite")
            else "create table done (id bigserial primary key, n bigint not null, name text)"
        )


def done_offsets(url: str) -> list[int]:
    """Offsets in the order in which their effects were committed."""
    with raw(url) as sql:
        return [n for (n,) in sql("select n from done order by id")]
