"""Run the service with uvicorn, and stop it gracefully."""

from __future__ import annotations

import os
import socket
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from penstock.core.urls import is_loopback
from penstock.errors import StoreUnavailable, TokenNeeded
from penstock.http.auth import Auth, NoAuth, Tokens
from penstock.http.polls import Polls
from penstock.log.log import Log
from penstock.log.tokens import ENVIRONMENT
from penstock.web import Live

# With the database: who asks should hear that it is away before they give up, and others need the threads.
PATIENCE_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 10  # for the requests that are being answered when the service is stopped


def auth_for(log: Log, host: str, *, no_auth: bool) -> Auth:
    """Return how this service knows who asks; `TokenNeeded` if anybody on the network could ask without a token."""
    if no_auth:
        if not is_loopback(host):
            raise TokenNeeded(f"--no-auth works on a loopback address only, and {host} is none.")
        return NoAuth()
    environment = os.environ.get(ENVIRONMENT) or None
    if environment is None and all(one.revoked_at is not None for one in log.tokens()):
        raise TokenNeeded
    return Tokens(log, environment)


def listen(host: str, port: int) -> socket.socket:
    """Take the address before anything else is done, so that a mistake is an error and not a log line."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Of TCP by name: only then asyncio sends answers without waiting for the client to acknowledge their headers.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise StoreUnavailable(f"Cannot listen on {host}:{port}: {error}.") from error
    return made


class Server(uvicorn.Server):
    """A server that answers those who wait as soon as it is told to stop."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",  # whatever else is installed: one loop, the one that is tested
            access_log=False,
            log_config=None,  # its warnings go where those of Penstock go
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=64 * 1024,
        )
        super().__init__(config)
        self._polls: Polls = app.state.polls
        self._live: Live = app.state.live

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gracefully at the first signal; at the second one at once. uvicorn would raise it again at the end."""
        if self.should_exit:
            self.force_exit = True
        self.stop()

    def obey(self, wanted: str) -> bool:
        """Follow an operator's order to the run of this service; False if that is no news."""
        if wanted == "stop" and not self.should_exit:
            self.stop()
            return True
        return False

    def stop(self) -> None:
        """Stop gracefully, from any thread."""
        self._polls.stop()
        self._live.stop()
        self.should_exit = True
