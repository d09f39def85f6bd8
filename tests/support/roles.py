"""Roles of the database that may do what one kind of client does, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import psycopg


@contextmanager
def role_of(kind: Literal["producer", "worker", "reader"], url: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """The log's URL for the role `<kind>_…`, and the owner's connection, on which it may be granted more."""
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
    """A role that works, or one of another kind."""
    with role_of(kind, url) as found:
        yield found
