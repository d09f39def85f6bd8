"""A thread that extends leases while handlers work, and raises the stop flag when their time is up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.core.codec import error_code
from penstock.core.log_fields import about
from penstock.engine.isolation.marks import Marks
from penstock.errors import AWAY, LeaseLost
from penstock.log.lease import Lease

logger = logging.getLogger("penstock")

Cancel = Callable[[Mapping[int, str]], None]
_TICK = 0.05
_BEATS = 3  # per lease_seconds: two may fail


@dataclass(slots=True)
class _Watched:
    lease: Lease
    lease_seconds: float
    next_beat: float
    marks: Marks | None = None
    seconds: float = 0.0  # limit on the work, from the first event
    stop_at: float | None = None
    stuck_seconds: float | None = None  # let the lease expire if an event runs longer than this
    seen: tuple[list[int], float] = ([], 0.0)
    cancel: Cancel | None = None  # ends events, while they are handled
    cancelled: dict[int, str] = field(default_factory=dict)  # events that should end, by offset


class Heartbeat:
    """Heartbeats and time limits for all leases of one engine."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[int, _Watched] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="penstock-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def keep(self, lease: Lease, lease_seconds: float) -> None:
        """Extend a lease from now on, until `drop`."""
        with self._changed:
            self._watched[lease.id] = _Watched(lease, lease_seconds, time.monotonic() + lease_seconds / _BEATS)
            self._changed.notify()

    def drop(self, lease: Lease) -> None:
        """Stop extending a lease that is about to end."""
        with self._changed:
            self._watched.pop(lease.id, None)

    @contextmanager
    def limit(
        self, lease: Lease, marks: Marks, seconds: float, stuck_seconds: float | None, cancel: Cancel | None = None
    ) -> Iterator[None]:
        """Raise the stop flag after `seconds` of work, and `cancel` events when a heartbeat says so.

        Time counts from the first event, so a process that is slow to load does not use up the lease.
        """
        with self._changed:
            watched = self._watched.get(lease.id)
            if watched is not None:
                watched.marks, watched.seconds, watched.stuck_seconds = marks, seconds, stuck_seconds
                watched.cancel = cancel
                if cancel is not None:
                    cancel(watched.cancelled)
            else:
                marks.stop[0] = 1  # lost while it waited for its turn
        try:
            yield
        finally:
            with self._changed:
                if watched is not None:
                    watched.marks = watched.cancel = None

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(_TICK if self._watched else None)
                due = [one for one in self._watched.values() if self._look(one, time.monotonic())]
            for one in due:
                self._beat(one)

    def _look(self, one: _Watched, now: float) -> bool:
        """Raise the stop flag when time is up; return whether a heartbeat is due."""
        if one.marks is not None:
            if one.stop_at is None and one.marks.begun():
                one.stop_at = now + one.seconds
            if one.stop_at is not None and now >= one.stop_at:
                one.marks.stop[0] = 1
        return now >= one.next_beat and not self._stuck(one, now)

    def _stuck(self, one: _Watched, now: float) -> bool:
        """Whether an inline handler hangs. It cannot be stopped, but its lease can expire."""
        if one.marks is None or one.stuck_seconds is None:
            return False
        running = one.marks.running()
        if running != one.seen[0]:
            one.seen = (running, now)
        return bool(running) and now - one.seen[1] > one.stuck_seconds

    def _beat(self, one: _Watched) -> None:
        one.next_beat = time.monotonic() + one.lease_seconds / _BEATS
        try:
            one.lease.extend()
            if one.lease.cancelled:
                with self._changed:
                    one.cancelled.update(one.lease.cancelled)
                    if one.cancel is not None:
                        one.cancel(one.cancelled)
        except LeaseLost:
            with self._changed:  # so that `limit` does not take the marks away meanwhile
                self._watched.pop(one.lease.id, None)
                if one.marks is not None:
                    one.marks.stop[0] = 1  # its settle would be refused anyway
        except Exception as error:  # the other leases need this thread
            if not isinstance(error, AWAY):
                fields = about("heartbeat_failed", lease=one.lease.id, code=error_code(error))
                logger.warning("lease %d: heartbeat failed: %s", one.lease.id, error, extra=fields)
            one.next_beat = time.monotonic() + one.lease_seconds / _BEATS / 4  # retry soon
