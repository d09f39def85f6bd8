"""What the engine sends to the process of a job type: read by the thread that does the jobs, while it has none.

So a job that arrives is begun by the thread that was woken by it. While that thread is busy, another one reads.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.engine.isolation import wire
from penstock.engine.jobs.wake import WakePipe

_SHORT_SECONDS = 0.002  # most jobs of a trickle end before the other thread need read

Take = Callable[[Any, bytearray | memoryview], None]


class Inbox:
    """The messages of one engine. `read` and `is_busy` are for the thread that does the jobs."""

    def __init__(self, connection: socket.socket, take: Take, ended: Callable[[], None]) -> None:
        self._connection = connection
        self._take = take
        self._ended = ended  # called in the other thread, if the engine has gone while a job runs
        self._reading = threading.Lock()
        self._busy = threading.Event()
        self._wake = WakePipe()
        self._closed = False
        self._poll = select.poll()
        for one in (connection, self._wake):
            self._poll.register(one, select.POLLIN)
        threading.Thread(target=self._read_while_busy, daemon=True).start()

    def read(self, has_work: Callable[[], bool]) -> bool:
        """Wait for a message and take it, unless the other thread has just taken one that brought work.

        False when the engine has closed the connection.
        """
        if self._busy.is_set():
            self._busy.clear()
            self._wake.set()
        with self._reading:
            self._wake.clear()
            return has_work() or self._next()

    def is_busy(self) -> None:
        """Let the other thread read, from now to the next `read`."""
        self._busy.set()

    def _next(self) -> bool:
        message = None if self._closed else wire.receive(self._connection)
        if message is None:
            self._closed = True
            return False
        self._take(*message)
        return True

    def _read_while_busy(self) -> None:
        while True:
            self._busy.wait()
            time.sleep(_SHORT_SECONDS)
            with self._reading:
                while self._busy.is_set():
                    self._poll.poll()
                    if not self._wake.is_set() and not self._next():
                        self._ended()
