"""Where the chaos happens: a PostgreSQL of the demo's own, a database that somebody named, or an SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.cli.demo.chaos.proxy import Proxy

if TYPE_CHECKING:
    from penstock.testing.servers.postgres import PostgresServer


class Arena(Protocol):
    """A database for workers and producers, and what can be done to it."""

    url: str  # for workers and producers
    watch_url: str  # for the scoreboard: it is not in the way of what is cut
    place: str  # in words
    can_cut: bool
    can_kill: bool

    def cut(self) -> int:
        """Cut all connections; returns how many."""

    def kill(self) -> None:
        """Kill the database without notice."""

    def revive(self) -> None:
        """Start it again; it recovers by itself."""


class OwnServer:
    """A PostgreSQL in a temporary directory, behind a proxy; it is durable, and may be killed at any time."""

    can_cut = can_kill = True

    def __init__(self, server: PostgresServer, proxy: Proxy, database: str) -> None:
        self._server, self._proxy = server, proxy
        self.watch_url = server.url(database)
        self.url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database}?sslmode=disable&gssencmode=disable"
        self.place = f"a {server.binaries} of its own"

    def cut(self) -> int:
        return self._proxy.cut()

    def kill(self) -> None:
        self._server.kill()

    def revive(self) -> None:
        self._server.start()


class Untouched:
    """A database that is left alone: one that somebody named, or a file."""

    can_cut = can_kill = False

    def __init__(self, url: str, place: str) -> None:
        self.url = self.watch_url = url
        self.place = place

    def cut(self) -> int:
        return 0

    def kill(self) -> None:
        """It is not ours."""

    def revive(self) -> None:
        """It was never killed."""


@contextmanager
def arena(named_url: str | None, directory: Path) -> Iterator[Arena]:
    """The database that was named, else a PostgreSQL if this machine has the programs, else a file."""
    if named_url is not None:
        yield Untouched(named_url, "the database you named, which is left alone: only processes are killed")
        return
    if not _has_postgres():
        place = "an SQLite file: no PostgreSQL server was found, so only processes are killed"
        yield Untouched(f"sqlite:///{directory / 'shop.db'}", place)
        return
    from penstock.testing.servers.postgres import PostgresServer

    with PostgresServer(fsync=True) as server, Proxy(server.port) as proxy:
        server.create_database("shop")
        yield OwnServer(server, proxy, "shop")


def _has_postgres() -> bool:
    """Whether there are a server's programs and a driver."""
    try:
        import psycopg  # noqa: F401

        from penstock.testing.servers.postgres_binaries import available_servers
    except ImportError:
        return False
    return bool(available_servers())
