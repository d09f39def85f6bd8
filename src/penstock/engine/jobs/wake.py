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

    def fileno(self) -> int:
        return self._reader

    def set(self) -> None:
        super().set()
        with suppress(BlockingIOError):  # full: it is readable anyway
            os.write(self._writer, b"!")

    def clear(self) -> None:
        super().clear()
        with suppress(BlockingIOError):
            while os.read(self._reader, 4096):
                pass

    def close(self) -> None:
        """Free the descriptors."""
        os.close(self._reader)
        os.close(self._writer)
