"""A TCP proxy in front of PostgreSQL that cuts a connection at a chosen statement."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

Cut = Literal["before", "after"]  # before: the server never gets the statement; after: its answer is lost
Decide = Callable[[str], Cut | None]
_READY = b"Z\x00\x00\x00\x05"


class CuttingProxy:
    """Calls `decide` for every statement of every connection; starts on `with`."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._decide: Decide = lambda statement: None
        self.cuts: list[str] = []  # the statements at which it cut
        self.statements: list[str] = []
        self.cut = threading.Event()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def url(self, of: str) -> str:
        """The URL of a database, through the proxy."""
        name = of.rpartition("/")[2]
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}?sslmode=disable&gssencmode=disable"

    def cut_when(self, decide: Decide) -> None:
        """Use this decision from now on."""
        with self._lock:
            self.cut.clear()
            self._decide = decide

    def cut_at(self, number: int, how: Cut) -> None:
        """Cut only the n-th statement from now."""
        left = number

        def decide(statement: str) -> Cut | None:
            nonlocal left
            left -= 1
            return how if left == 0 else None

        self.cut_when(decide)

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
                server = socket.create_connection(("127.0.0.1", self._server_port))
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError):
            _Connection(self, client, server).run()

    def asked(self, statement: str) -> Cut | None:
        with self._lock:
            self.statements.append(statement)
            found = self._decide(statement)
            if found is not None:
                self.cuts.append(statement)
                self.cut.set()
            return found


class _Connection:
    """One client; its messages are collected until one needs an answer."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._coming = b""  # from the client, not yet a whole message
        self._held = b""  # whole messages of a statement that is not complete
        self._text = ""
        self._greeted = False
        self._muted = b""

    def run(self) -> None:
        silenced = False
        while True:
            ready, _, _ = select.select([self._client, self._server], [], [])
            if self._server in ready:
                data = self._server.recv(65536)
                if not data:
                    return
                if silenced:
                    self._muted = (self._muted + data)[-6:]
                    if self._muted[:5] == _READY or data[:1] == b"G":
                        return  # the server is done or waits for a COPY, and the client gets no answer
                else:
                    self._client.sendall(data)
            if self._client in ready and not silenced:
                data = self._client.recv(65536)
                if not data:
                    return
                self._coming += data
                cut = self._forward()
                if cut == "before":
                    return
                silenced = cut == "after"

    def _forward(self) -> Cut | None:
        while (message := self._next()) is not None:
            self._held += message
            kind = message[:1]
            if kind in b"QP":
                self._text = message[5:].replace(b"\0", b" ").decode("utf-8", "replace").strip()
            if self._greeted and kind not in b"QSHdcf":
                continue
            cut = self._proxy.asked(self._text.lower()) if self._greeted and kind in b"QS" else None
            if cut != "before":
                self._server.sendall(self._held)
            self._held, self._greeted = b"", True
            if cut is not None:
                return cut
        return None

    def _next(self) -> bytes | None:
        first = 1 if self._greeted else 0  # the first message has no kind
        if len(self._coming) < first + 4:
            return None
        (size,) = struct.unpack("!i", self._coming[first : first + 4])
        if len(self._coming) < first + size:
            return None
        message, self._coming = self._coming[: first + size], self._coming[first + size :]
        return message
