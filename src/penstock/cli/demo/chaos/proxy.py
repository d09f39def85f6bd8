"""A TCP proxy in front of the demo's database, whose connections can be cut in the middle of anything."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class Proxy:
    """Passes everything on to a port of this machine; starts on `with`."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut(self) -> int:
        """Close every connection, whatever it was doing; returns how many there were."""
        with self._lock:
            cut = [*self._open]
        for one in cut:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        return len(cut)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="penstock-demo-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, ValueError), socket.create_connection(("127.0.0.1", self._server)) as server:
            with self._lock:
                self._open.add(client)
            try:
                _pass_on(client, server)
            finally:
                with self._lock:
                    self._open.discard(client)


def _pass_on(client: socket.socket, server: socket.socket) -> None:
    other = {client: server, server: client}
    while True:
        ready, _, _ = select.select([client, server], [], [])
        for one in ready:
            data = one.recv(_CHUNK)
            if not data:
                return
            other[one].sendall(data)
