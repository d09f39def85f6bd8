"""What many viewers see is made once: the live part of a page, for everybody with the same rights and filters."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

_LEAST_SECONDS: Final = 0.9
_MOST_SECONDS: Final = 15.0
_SHARE: Final = 100  # a page is made again after a hundred times the time that it took: one percent of a core
_KEPT: Final = 256


class _Snapshot:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.until = 0.0
        self.html: str | None = None


class Snapshots:
    """The newest of every page, for a moment; those who ask while one is made wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Snapshot] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], str]) -> str:
        """Return what `make` made for this key a moment ago, or makes now."""
        with self._lock:
            known = self._kept.setdefault(key, _Snapshot())
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        with known.lock:
            if known.html is None or time.monotonic() >= known.until:
                began = time.monotonic()
                known.html = make()
                ended = time.monotonic()
                known.until = ended + min(max(_LEAST_SECONDS, _SHARE * (ended - began)), _MOST_SECONDS)
            return known.html
