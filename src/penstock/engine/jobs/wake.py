"""A flag that another thread raises and that can be waited for together with sockets."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


class WakePipe(threading.Event):
    """An event with a file descriptor that is readable while it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._using = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        return self._reader

    def set(self) -> None:
        super().set()
        with self._using, suppress(BlockingIOError):  # full: it is readable anyway
            if not self._closed:
                os.write(self._writer, b"!")

    def clear(self) -> None:
        super().clear()
        with self._using, suppress(BlockingIOError):
            while not self._closed and os.read(self._reader, 4096):
                pass

    def close(self) -> None:
        """Free the descriptors; raising the flag then does nothing more."""
        with self._using:
            self._closed = True
            os.close(self._reader)
            os.close(self._writer)
