"""Any ASGI application on a free port, run by uvicorn in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from penstock.http.serving import listen
from tests.support.waiting import wait_until


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Serve an application as long as the block lasts; its address."""
    server = uvicorn.Server(
        uvicorn.Config(app, loop="asyncio", log_level="critical", lifespan="off", timeout_graceful_shutdown=5)
    )
    with listen("127.0.0.1", 0) as socket:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, name="asgi")
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive(), "the server to start")
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
