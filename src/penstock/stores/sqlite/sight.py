"""A look-out's view of a SQLite file: a number in memory says whether anybody has committed since the last look."""

from __future__ import annotations

from penstock.core.look import Look
from penstock.stores.sqlite.connections import Connections
from penstock.stores.sqlite.faults import named, patiently
from penstock.stores.wake import readable


class SqliteSight:
    """Used by one thread, whose connection only reads: what changes is somebody else's doing."""

    listens = False

    def __init__(self, path: str, connections: Connections, statement: str) -> None:
        self._path = path
        self._connections = connections
        self._statement = statement
        self._known: tuple[tuple[int, int], Look] | None = None

    def look(self) -> Look:
        with named(self._path), self._connections.lend() as connection:
            version: int = patiently(lambda: connection.execute("pragma data_version").fetchone()[0])
            key = (id(connection), version)  # the number means something on its own connection only
            if self._known is None or self._known[0] != key:
                self._known = (key, Look(*patiently(lambda: connection.execute(self._statement).fetchone())))
        return self._known[1]

    def expect(self, waiting: bool) -> None:
        """Nobody notifies."""

    def wait(self, seconds: float | None, kick: int) -> bool:
        readable([kick], seconds)
        return False

    def close(self) -> None:
        """The connection is its thread's."""
