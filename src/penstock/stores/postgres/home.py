"""Which server a log lives on: a standby is only read, and a copy waits for its repair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

import psycopg

from penstock.errors import CopiedLog, OnStandby


class Place(NamedTuple):
    """Where a connection has led to."""

    standby: bool = False
    copied: bool = False  # from another server
    subscribed: bool = False  # a subscription fills it, and announces nobody

    def check_readable(self) -> None:
        """Refuse a log whose horizon cannot be known."""
        if self.copied or self.subscribed:
            raise CopiedLog

    def check_writable(self) -> None:
        if self.standby:
            raise OnStandby
        self.check_readable()


_HOME = Place()


class Home:
    """Looks once a connection: a primary stays one for as long as its connections last. A standby may be promoted."""

    def __init__(self, blocks: Mapping[str, str]) -> None:
        self._blocks = blocks
        self._known: WeakSet[psycopg.Connection[Any]] = WeakSet()

    def place(self, connection: psycopg.Connection[Any]) -> Place:
        """Where this connection, outside any transaction, has led to."""
        if connection in self._known:
            return _HOME
        found = self._look(connection)
        connection.rollback()
        if found == _HOME:
            self._known.add(connection)
        return found

    def move_in(self, connection: psycopg.Connection[Any]) -> bool:
        """Make a copied log one of this server's; False if it was one. Refused while a subscription fills it."""
        found = self._look(connection)
        if found.standby:
            raise OnStandby
        if found.subscribed:
            raise CopiedLog("An enabled subscription fills this log; its apply does not announce what it appends.")
        if found.copied:
            connection.execute(self._blocks["home.leave"], prepare=False)
            connection.execute(self._blocks["home.settle"], prepare=False)
        connection.commit()
        return found.copied

    def _look(self, connection: psycopg.Connection[Any]) -> Place:
        row = connection.execute(self._blocks["home.look"], prepare=False).fetchone()
        assert row is not None
        return Place(*row)
