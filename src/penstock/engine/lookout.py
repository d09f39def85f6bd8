"""One look-out per engine process: it watches the log for all idle groups, and wakes their workers."""

from __future__ import annotations

import logging
import math
import os
import select
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from penstock.core.codec import error_code
from penstock.core.lease import Idle
from penstock.core.limits import IDLE_CLAIM_SECONDS, IDLE_CLAIMS_PER_SECOND, LOOK_FIRST_SECONDS, LOOK_MOST_SECONDS
from penstock.core.log_fields import about
from penstock.core.look import Look, Sight
from penstock.errors import AWAY
from penstock.log.log import Log

logger = logging.getLogger("penstock")
_GROWTH = 1.1  # of the pause between two looks: keeps it at a tenth of the time since something happened
_FEW = 2  # so few workers are woken without a look: a claim that finds nothing costs no more than a look
_LINGER_SECONDS = 1.0  # appenders keep notifying this long after the last worker found something
_RETRY_SECONDS = (0.1, 5.0)  # between attempts to connect: first and longest; it doubles


@dataclass(slots=True, eq=False)
class Waiter:
    """A group's worker, as the look-out sees it; lives as long as the worker."""

    woken: threading.Event = field(default_factory=threading.Event)
    idle: Idle | None = None  # the answer to its last claim, while it waits
    due: float = math.inf  # when to claim even if nothing changed
    pause: float = field(default_factory=lambda: LOOK_FIRST_SECONDS)
    next_look: float = 0.0
    not_before: float = 0.0  # ignore until then what was true at its last claim
    seen: Look | None = None  # the look before its last claim, if there was one

    def found(self) -> None:
        """Look often again: there was work."""
        self.pause = LOOK_FIRST_SECONDS


class Wakes(Protocol):
    """Whoever wakes a worker that found nothing."""

    def watch_for(self, waiter: Waiter, idle: Idle) -> None:
        """Wake a waiter when a claim may find something; once."""

    def forget(self, waiter: Waiter) -> None:
        """Wake a waiter no more."""


class LookOut:
    """Wakes workers when a claim may find something: the log grew, an operator acted, or something is due.

    Notifications only make it faster; polling finds everything without them.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._waiting: set[Waiter] = set()
        self._closing = False
        self._sight: Sight | None = None
        self._lost = False
        self._waited = 0.0  # when a worker last waited
        self._retry_at, self._retry_pause = 0.0, _RETRY_SECONDS[0]
        self._kick, self._kicked = os.pipe()
        for one in (self._kick, self._kicked):
            os.set_blocking(one, False)
        self._kick_poll = select.poll()
        self._kick_poll.register(self._kick, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name="penstock-look-out", daemon=True)
        self.woke: Counter[str] = Counter()  # by reason: notified, polled, due

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wake all workers and stop the thread."""
        self._closing = True
        self._interrupt()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            kick, kicked, self._kick, self._kicked = self._kick, self._kicked, -1, -1
        os.close(kick)
        os.close(kicked)

    @property
    def listens(self) -> bool:
        """Whether notifications arrive; if not, the look-out polls."""
        sight = self._sight
        return sight is not None and sight.listens

    def wait(self, waiter: Waiter, idle: Idle, stopping: threading.Event) -> None:
        """Return when a claim may find something, or when stopping."""
        self.watch_for(waiter, idle)
        if not stopping.is_set() and not self._closing:
            waiter.woken.wait()
        self.forget(waiter)

    def watch_for(self, waiter: Waiter, idle: Idle) -> None:
        """Wake a waiter when a claim may find something; once."""
        patience = max(IDLE_CLAIM_SECONDS, len(self._waiting) / IDLE_CLAIMS_PER_SECOND)
        waiter.due = time.monotonic() + min(patience, math.inf if idle.seconds is None else idle.seconds)
        waiter.next_look = time.monotonic()  # something may have happened since the claim
        waiter.not_before = waiter.next_look + waiter.pause
        waiter.idle = idle
        with self._lock:
            self._waiting.add(waiter)
        self._interrupt()

    def forget(self, waiter: Waiter) -> None:
        """Wake a waiter no more."""
        waiter.woken.clear()
        with self._lock:
            self._waiting.discard(waiter)

    def _interrupt(self) -> None:
        with self._lock:
            if self._kicked >= 0:
                with suppress(BlockingIOError):  # full: it wakes up anyway
                    os.write(self._kicked, b"!")

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._watch()
            except AWAY as error:
                self._lose(error)
            except Exception as error:  # without the look-out its workers would sleep on
                fields = about("lookout_failed", code=error_code(error))
                logger.warning("look-out: %s: %s", type(error).__name__, error, extra=fields)
                self._lose(error)
        self._disconnect()

    def _watch(self) -> None:
        """Do one round: look, wake workers, wait for the next reason to look."""
        sight = self._sight or self._connect()
        with self._lock:
            waiting = list(self._waiting)
        if sight is None:
            self._wait_disconnected(waiting)
            return
        now = time.monotonic()
        if not waiting:
            left = self._waited + _LINGER_SECONDS - now
            if left <= 0:
                sight.expect(False)
            self._nap(sight, left if left > 0 else None)
            return
        self._waited = now
        sight.expect(True)  # before the look, so that later appends notify us
        if any(min(one.next_look, one.due) <= now for one in waiting):
            self._look(sight, waiting, "polled")
            return
        due = min(min(one.next_look, one.due) for one in waiting)
        if not self._nap(sight, max(0.0, due - time.monotonic())):
            return
        if len(waiting) > _FEW:
            self._look(sight, waiting, "notified")
        else:
            for one in waiting:
                self._wake(one, None, "notified")

    def _nap(self, sight: Sight, seconds: float | None) -> bool:
        """Wait; return whether a notification came."""
        notified = sight.wait(seconds, self._kick)
        self._clear_kick()
        return notified

    def _clear_kick(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._kick, 4096)

    def _look(self, sight: Sight, waiting: list[Waiter], why: str) -> None:
        look = sight.look()
        now = time.monotonic()
        for one in waiting:
            reason = self._reason(one, look, now, why)
            one.pause = min(_GROWTH * one.pause, LOOK_MOST_SECONDS)
            one.next_look = now + one.pause
            if reason is not None:
                self._wake(one, look, reason)

    def _reason(self, one: Waiter, look: Look, now: float, why: str) -> str | None:
        idle, seen = one.idle, one.seen
        if idle is None:
            return None
        if seen is None or look.actions > seen.actions or look.returned > seen.returned:
            return why
        if now >= one.due:
            return "due"
        if idle.paused:
            return None
        early = why != "notified" and now < one.not_before
        # Ignore what is not committed yet. A claim that failed (horizon 0) does not know how far it looked.
        if look.horizon > idle.horizon and not (early and idle.horizon == 0):
            return why
        return None

    def _wake(self, one: Waiter, look: Look | None, reason: str) -> None:
        self.woke[reason] += 1
        if look is not None:
            one.seen = look
        with self._lock:
            self._waiting.discard(one)
        one.woken.set()

    # --- without a connection ------------------------------------------------------------------------------------

    def _connect(self) -> Sight | None:
        if time.monotonic() < self._retry_at:
            return None
        self._sight = self._log.store.sight()
        if self._lost:
            logger.warning("look-out: the database is back", extra=about("back"))
        self._lost, self._retry_pause = False, _RETRY_SECONDS[0]
        return self._sight

    def _lose(self, error: Exception) -> None:
        """Drop the connection and log it once; reconnect at once, then with growing pauses."""
        if not self._lost:
            logger.warning("look-out: %s", error, extra=about("away", code=error_code(error)))
        self._lost = True
        had = self._sight is not None
        self._disconnect()
        self._retry_at = 0.0 if had else time.monotonic() + self._retry_pause
        self._retry_pause = min(2 * self._retry_pause, _RETRY_SECONDS[1])

    def _disconnect(self) -> None:
        sight, self._sight = self._sight, None
        if sight is not None:
            sight.close()

    def _wait_disconnected(self, waiting: list[Waiter]) -> None:
        """Wait without a connection; wake workers that are due, to see for themselves."""
        now = time.monotonic()
        for one in waiting:
            if now >= one.due:
                self._wake(one, None, "due")
        due = min([self._retry_at, *(one.due for one in waiting if now < one.due)])
        self._kick_poll.poll(math.ceil(1000 * max(0.0, due - time.monotonic())))
        self._clear_kick()


@dataclass(frozen=True, slots=True)
class IdleWatch:
    """Waiting with the help of a look-out."""

    lookout: LookOut
    waiter: Waiter
    stopping: threading.Event

    def found(self) -> None:
        """Look often again: there was work."""
        self.waiter.found()

    def wait(self, idle: Idle) -> None:
        """Return when a claim may find something, or when stopping."""
        self.lookout.wait(self.waiter, idle, self.stopping)
