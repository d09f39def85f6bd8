"""Retry while the database is unreachable."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.core.log_fields import about
from penstock.core.observe import LeaseGone, Observers, StoreAway
from penstock.errors import AWAY, LeaseLost, PenstockError

T = TypeVar("T")
logger = logging.getLogger("penstock")
PAUSE_SECONDS = (0.1, 5.0)  # between retries: first and longest; it doubles
_LOG_SECONDS = 30.0  # between two log lines about the same error


class Outage:
    """The log lines about an outage: when it begins, when its error changes, every 30 s, and when it ends.

    Many threads notice the same outage; only one of them logs it.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, what: str = "the database") -> None:
        self._now = now
        self._what = what
        self._lock = threading.Lock()
        self._began: float | None = None
        self._logged: dict[str, float] = {}  # when, by error code

    def goes_on(self, name: str, error: PenstockError) -> None:
        """Log that something failed because of it, unless that was logged lately."""
        with self._lock:
            now = self._now()
            if self._began is None:
                self._began = now
                self._logged.clear()
            if now < self._logged.get(error.code, -_LOG_SECONDS) + _LOG_SECONDS:
                return
            self._logged[error.code] = now
        logger.warning("%s: waiting for %s: %s", name, self._what, error, extra=about("away", name, code=error.code))

    def is_over(self, name: str) -> None:
        """Log the end, once: something that had failed worked."""
        with self._lock:
            began, self._began = self._began, None
        if began is not None:
            logger.warning(
                "%s: %s is back after %.1f s", name, self._what, self._now() - began, extra=about("back", name)
            )


database = Outage()  # shared by all threads of this process


def patiently(
    do: Callable[[], T], name: str, observers: Observers, stopping: threading.Event, outage: Outage = database
) -> T | None:
    """Retry until it works; `do` must be safe to repeat. None if the lease is lost, or when stopped."""
    pause, most = PAUSE_SECONDS
    failed = False
    while True:
        try:
            done = do()
        except LeaseLost as error:
            observers.emit(LeaseGone(name, error.message))
            logger.warning("%s: %s", name, error.message, extra=about("lease_lost", name, code=error.code))
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


def try_once(do: Callable[[], T], name: str, outage: Outage = database) -> T | None:
    """Try once; None, and a log line, if the database is unreachable."""
    try:
        return do()
    except AWAY as error:
        outage.goes_on(name, error)
        return None
