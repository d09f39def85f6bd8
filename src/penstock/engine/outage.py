"""Doing something again while the database is away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.core.observe import LeaseGone, Observers, StoreAway
from penstock.errors import AWAY, LeaseLost, PenstockError

T = TypeVar("T")
logger = logging.getLogger("penstock")
_PAUSE_SECONDS = (0.1, 5.0)  # between two tries: it doubles from the first to the last
_SAID_SECONDS = 30.0  # between two lines about the same outage


class Outage:
    """What is said about a database that is away: when it begins, when it becomes another one, now and then while it
    lasts, and when it ends.

    Many threads of an engine notice the same outage; one of them says so.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._began: float | None = None
        self._said: dict[str, float] = {}  # by the error's code

    def goes_on(self, name: str, error: PenstockError) -> None:
        """Something failed because of it."""
        with self._lock:
            now = self._now()
            if self._began is None:
                self._began = now
                self._said.clear()
            if now < self._said.get(error.code, -_SAID_SECONDS) + _SAID_SECONDS:
                return
            self._said[error.code] = now
        logger.warning("%s: waiting for the database: %s", name, error)

    def is_over(self, name: str) -> None:
        """Something that had failed worked."""
        with self._lock:
            began, self._began = self._began, None
        if began is not None:
            logger.warning("%s: the database is back after %.1f s", name, self._now() - began)


_outage = Outage()  # of this process


def patiently(
    do: Callable[[], T], name: str, observers: Observers, stopping: threading.Event, outage: Outage = _outage
) -> T | None:
    """Do it until it is done; it must be safe to repeat. None if the lease is lost, or when stopped meanwhile."""
    pause, most = _PAUSE_SECONDS
    failed = False
    while True:
        try:
            done = do()
        except LeaseLost as error:
            observers.emit(LeaseGone(name, error.message))
            logger.warning("%s: %s", name, error.message)
            return None
        except AWAY as error:
            failed = True
            observers.emit(StoreAway(name, error))
            outage.goes_on(name, error)
            if stopping.wait(pause):
                return None
            pause = min(2 * pause, most)
        else:
            if failed:
                outage.is_over(name)
            return done


def try_once(do: Callable[[], T], name: str, outage: Outage = _outage) -> T | None:
    """Do it now, or leave it to the next time if the database is away."""
    try:
        return do()
    except AWAY as error:
        outage.goes_on(name, error)
        return None
