"""Database roles for one kind of client each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import psycopg


@contextmanager
def role_of(kind: Literal["producer", "worker", "reader"], url: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """Create the role `<kind>_…`; give the log's URL for it and the owner's connection, to grant more."""
    role = f"{kind}_{url.rpartition('/')[2]}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"create role {role} login")
        owner.execute(f"select penstock.grant_{kind}(%s)", (role,))
        try:
            yield url.replace("postgres@", f"{role}@"), owner
        finally:
            owner.execute(f"drop owned by {role}")
            owner.execute(f"drop role {role}")


@contextmanager
def worker_role(
    url: str, kind: Literal["producer", "worker", "reader"] = "worker"
) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """The same, for a worker by default."""
    with role_of(kind, url) as found:
        yield found
