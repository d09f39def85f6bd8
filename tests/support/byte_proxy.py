"""A TCP proxy that cuts its connections after some bytes in one direction."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class ByteProxy:
    """Passes everything on until `cut_after` says where to stop, once; starts on `with`."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}
        self.cuts = 0

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut_after(self, *, up: int | None = None, down: int | None = None) -> None:
        """Cut after so many more bytes to the server, or from it."""
        with self._lock:
            self._left = {name: count for name, count in (("up", up), ("down", down)) if count is not None}

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._server_port)) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for one in ready:
                    data = one.recv(65_536)
                    if not data:
                        return
                    passed = self._passes(data, "up" if one is client else "down")
                    (server if one is client else client).sendall(data[:passed])
                    if passed < len(data):
                        return

    def _passes(self, data: bytes, way: str) -> int:
        with self._lock:
            if way not in self._left:
                return len(data)
            passed = min(self._left[way], len(data))
            self._left[way] -= passed
            if passed < len(data):
                self._left.clear()
                self.cuts += 1
            return passed
