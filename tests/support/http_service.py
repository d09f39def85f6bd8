"""The HTTP service on a free port, run by uvicorn in a thread, and identities to call it with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx

import penstock
from penstock.connect.http import Client
from penstock.http.app import service
from penstock.http.auth import Auth, Tokens
from penstock.http.serving import Server, listen
from tests.support.waiting import wait_until

SCOPES = ("append", "read", "payload", "work", "operate")
_numbers = count()


class Service:
    """A running service."""

    def __init__(self, log: penstock.Log, auth: Auth | None = None, **options: Any) -> None:
        self.log = log
        self.app = service(log, auth or Tokens(log), **options)
        self.server = Server(self.app)
        self._socket = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._socket]}, name="http")
        self._open: list[Any] = []

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self.server.started or not self._thread.is_alive(), "the service to start")
        assert self.server.started

    def stop(self) -> None:
        """Stop the service and wait until it has ended."""
        self.server.stop()
        self._thread.join()
        for one in self._open:
            one.close()
        self._socket.close()

    def token(self, *scopes: str, name: str | None = None) -> str:
        """The secret of a new token."""
        return self.log.create_token(name or f"token-{next(_numbers)}", scopes or ("admin",)).secret

    def client(self, *scopes: str, name: str | None = None) -> Client:
        """A client with a token of its own; without scopes it may do everything."""
        self._open.append(Client(self.url, token=self.token(*scopes, name=name)))
        return self._open[-1]

    def http(self, secret: str | None = None, **headers: str) -> httpx.Client:
        """Plain HTTP with this token, or with none."""
        sent = headers if secret is None else {"Authorization": f"Bearer {secret}", **headers}
        self._open.append(httpx.Client(base_url=self.url, headers=sent, timeout=60))
        return self._open[-1]

    @property
    def waiting(self) -> int:
        """How many requests wait for something to claim."""
        return len(self.app.state.polls._waiting)


@contextmanager
def serving(log: penstock.Log, auth: Auth | None = None, **options: Any) -> Iterator[Service]:
    """Run a service as long as the block lasts."""
    running = Service(log, auth, **options)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def is_problem(response: httpx.Response, status: int | None = None, code: str | None = None) -> bool:
    """Whether an answer is a problem as it should be; it fails with what it is if not."""
    assert response.headers.get("content-type") == "application/problem+json", (response.status_code, response.text)
    body = response.json()
    assert {"type", "title", "status", "detail", "code", "message", "hint"} <= body.keys(), body
    assert body["status"] == response.status_code and body["type"].endswith(body["code"]), body
    assert all(isinstance(body[name], str) and body[name] for name in ("title", "detail", "code", "message", "hint"))
    assert status in (None, response.status_code) and code in (None, body["code"]), (response.status_code, body)
    return True
