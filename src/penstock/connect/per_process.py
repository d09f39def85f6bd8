"""A connection of this process: made when it is first used, never shared with a forked child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Something that every process opens for itself, and that can be closed and opened anew."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], None]) -> None:
        self._make = make
        self._close = close
        self._lock = threading.Lock()
        self._pid = 0
        self._made: T | None = None

    def get(self) -> T:
        """Return the one of this process; whatever `make` raises is the caller's."""
        if os.getpid() != self._pid:  # a forked child leaves its parent's alone, and the lock may be held for ever
            self._lock, self._made, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def drop(self, one: T | None = None) -> None:
        """Close it; given one, only if that is still in use."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            made = self._made
            if made is None or (one is not None and made is not one):
                return
            self._made = None
        self._close(made)
