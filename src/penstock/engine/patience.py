"""Doing something again while the database is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.engine.counters import Counters
from penstock.engine.waiting import AWAY
from penstock.errors import LeaseLost

T = TypeVar("T")
logger = logging.getLogger("penstock")
_PAUSE_SECONDS = (0.1, 5.0)  # between two tries: it doubles from the first to the last


def patiently(do: Callable[[], T], name: str, counters: Counters, stopping: threading.Event) -> T | None:
    """Do it until it is done; it must be safe to repeat. None if the lease is lost, or when stopped meanwhile."""
    pause, most = _PAUSE_SECONDS
    while True:
        try:
            return do()
        except LeaseLost as error:
            counters.add(lost=1)
            logger.warning("%s: %s", name, error.message)
            return None
        except AWAY as error:
            counters.add(store_errors=1)
            logger.warning("%s: %s", name, error)
            if stopping.wait(pause):
                return None
            pause = min(2 * pause, most)
