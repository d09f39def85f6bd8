"""A connection between the driver and its slices: counts go to the driver, the order to stop goes to the slices.

A slice that cannot connect works until its time is up; one that loses the connection stops.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener

Counts = dict[str, int]
STOP = "stop"


@dataclass(frozen=True, slots=True)
class Line:
    """The driver's address, and the key that authenticates its slices."""

    host: str
    port: int
    key: bytes


class Switchboard:
    """The driver's end: `on_counts` is called with a slice's number and counts, from other threads."""

    def __init__(self, host: str, on_counts: Callable[[int, Counts], None]) -> None:
        key = secrets.token_bytes(32)
        self._on_counts = on_counts
        self._listener = Listener((host, 0), backlog=64, authkey=key)
        address = self._listener.address
        assert isinstance(address, tuple)
        self.line = Line(host, address[1], key)
        self._lock = threading.Lock()
        self._connected: set[Connection] = set()
        self._stopped = self._closed = False
        self._thread = threading.Thread(target=self._accept, name="penstock-switchboard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell all slices, including later ones, to stop gracefully."""
        with self._lock:
            self._stopped = True
            connected = list(self._connected)
        for connection in connected:
            _send(connection, STOP)

    def close(self) -> None:
        """Stop listening; a connection of our own wakes the blocked accept."""
        self._closed = True
        with suppress(OSError):
            socket.create_connection((self.line.host, self.line.port)).close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, OSError):
                continue  # a stranger, or the connection made by close()
            with self._lock:
                self._connected.add(connection)
                stopped = self._stopped
            if stopped:
                _send(connection, STOP)
            threading.Thread(target=self._listen, args=(connection,), name="penstock-slice", daemon=True).start()
        self._listener.close()

    def _listen(self, connection: Connection) -> None:
        try:
            number = connection.recv()
            while (counts := connection.recv()) is not None:
                self._on_counts(number, counts)
        except (EOFError, OSError):
            pass
        finally:
            with self._lock:
                self._connected.discard(connection)
            connection.close()


class Caller:
    """A slice's end. `stopped` is called in another thread when the driver says stop or is gone."""

    def __init__(self, line: Line, number: int, stopped: Callable[[], None]) -> None:
        self._connection: Connection | None = None
        self._stopped = stopped
        self._closed = False
        with suppress(OSError, EOFError, AuthenticationError):
            self._connection = Client((line.host, line.port), authkey=line.key)
            self._connection.send(number)
            threading.Thread(target=self._listen, name="penstock-caller", daemon=True).start()

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def report(self, counts: Counts) -> None:
        """Send the counts so far."""
        if self._connection is not None:
            _send(self._connection, counts)

    def close(self) -> None:
        """Send the end: the driver closes the connection, and that ends our listener, which is blocked in recv."""
        self._closed = True
        if self._connection is not None:
            _send(self._connection, None)

    def _listen(self) -> None:
        assert self._connection is not None
        with self._connection as connection:
            with suppress(EOFError, OSError):
                while not self._closed and connection.recv() != STOP:
                    pass
            if not self._closed:
                self._stopped()
            with suppress(EOFError, OSError):
                connection.recv()


def _send(connection: Connection, message: str | Counts | None) -> None:
    with suppress(OSError, ValueError):
        connection.send(message)
