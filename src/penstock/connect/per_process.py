"""A connection of this process: made when it is first used, never shared with a forked child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class _Slot(Generic[T]):
    __slots__ = ("lock", "made")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: T | None = None


class PerProcess(Generic[T]):
    """Something that every process opens for itself, and that can be closed and opened anew."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], None]) -> None:
        self._make = make
        self._close = close
        # By process. A forked child leaves its parent's slot alone: its lock may be held for ever, and to free what is
        # in it would speak to the parent's target, or wait for threads that did not come along.
        self._slots: dict[int, _Slot[T]] = {}

    def get(self) -> T:
        """Return the one of this process; whatever `make` raises is the caller's."""
        slot = self._slots.get(os.getpid()) or self._slots.setdefault(os.getpid(), _Slot())
        with slot.lock:
            if slot.made is None:
                slot.made = self._make()
            return slot.made

    def drop(self, one: T | None = None) -> None:
        """Close it; given one, only if that is still in use."""
        slot = self._slots.get(os.getpid())
        if slot is None:
            return
        with slot.lock:
            made = slot.made
            if made is None or (one is not None and made is not one):
                return
            slot.made = None
        self._close(made)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A publisher stays in its process: it may hold a password. Declare it in a module.")
