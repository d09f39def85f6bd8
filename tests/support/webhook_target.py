"""An HTTP server of the tests' own. It remembers every request, and answers as it is told."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    path: str
    headers: list[tuple[str, str]]  # values as latin-1, like on the wire
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for one, value in self.headers if one.lower() == name), None)


@dataclass
class Reply:
    """What to answer. `cut` ends the connection instead; `endless` never ends the body; `hold` waits first."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False
    endless: bool = False
    hold: threading.Event | None = None


class WebhookTarget:
    """Starts on `with`; `answer` decides on each request. After `down()`, `up()` listens on the same port again."""

    def __init__(
        self, answer: Callable[[Request], Reply] = lambda request: Reply(), tls: ssl.SSLContext | None = None
    ) -> None:
        self.answer = answer
        self.tls = tls
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http{'' if self.tls is None else 's'}://127.0.0.1:{self.port}/hook"

    def up(self) -> None:
        target = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def setup(self) -> None:
                super().setup()
                with target._lock:
                    target._open.add(self.connection)

            def do_POST(self) -> None:
                target._serve(self)

            def log_message(self, *_: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None: ...

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        """Listen no more, and cut all connections."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        request = Request(handler.path, list(handler.headers.raw_items()), body)
        with self._lock:
            self.requests.append(request)
        reply = self.answer(request)
        if reply.hold is not None:
            reply.hold.wait(60)
        if reply.cut:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if reply.endless:
            handler.end_headers()
            with suppress(OSError):
                while True:
                    handler.wfile.write(b"x" * 1024)
        handler.send_header("content-length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)
        handler.wfile.flush()

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()
