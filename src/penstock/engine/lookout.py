"""One look-out an engine process: it watches the log for all groups that have nothing to do, and wakes them."""

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

from penstock.core.lease import Idle
from penstock.core.limits import IDLE_CLAIM_SECONDS, IDLE_CLAIMS_PER_SECOND, LOOK_FIRST_SECONDS, LOOK_MOST_SECONDS
from penstock.core.look import Look, Sight
from penstock.errors import AWAY
from penstock.log.log import Log

logger = logging.getLogger("penstock")
_GROWTH = 1.1  # of the pause between two looks: it stays at a tenth of the time since something happened
_FEW = 2  # workers that a notification wakes without a look: a claim that finds nothing costs no more than one
_LINGER_SECONDS = 1.0  # appenders go on notifying for so long after the last worker has found something
_RETRY_SECONDS = (0.1, 5.0)  # between two tries to connect: it doubles from the first to the last


@dataclass(slots=True, eq=False)
class Waiter:
    """One group's worker. It has a place at the look-out for as long as it lives."""

    woken: threading.Event = field(default_factory=threading.Event)
    idle: Idle | None = None  # what its last claim said, while it waits
    due: float = math.inf  # when time alone is a reason to claim
    pause: float = field(default_factory=lambda: LOOK_FIRST_SECONDS)
    next_look: float = 0.0
    not_before: float = 0.0  # what was true at its last claim is no reason to claim again at once
    seen: Look | None = None  # where the log stood before its last claim, as far as it is known


class LookOut:
    """Wakes workers when a claim may find something: the log grew, somebody did something, it is time.

    Notifications make it quick where they arrive; everything is found without them, too.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._waiting: set[Waiter] = set()
        self._closing = False
        self._sight: Sight | None = None
        self._lost = False
        self._waited = 0.0  # when somebody waited last
        self._retry_at, self._retry_pause = 0.0, _RETRY_SECONDS[0]
        self._kick, self._kicked = os.pipe()
        for one in (self._kick, self._kicked):
            os.set_blocking(one, False)
        self._kick_poll = select.poll()
        self._kick_poll.register(self._kick, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name="penstock-look-out", daemon=True)
        self.woke: Counter[str] = Counter()  # why, for those who wonder: notified, polled, due

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wake everybody, for good."""
        self._closing = True
        self._stir()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            kick, kicked, self._kick, self._kicked = self._kick, self._kicked, -1, -1
        os.close(kick)
        os.close(kicked)

    @property
    def listens(self) -> bool:
        """Whether notifications arrive."""
        sight = self._sight
        return sight is not None and sight.listens

    def wait(self, waiter: Waiter, idle: Idle, stopping: threading.Event) -> None:
        """Return when a new claim may find something, or when it is time to end."""
        patience = max(IDLE_CLAIM_SECONDS, len(self._waiting) / IDLE_CLAIMS_PER_SECOND)
        waiter.due = time.monotonic() + min(patience, math.inf if idle.seconds is None else idle.seconds)
        waiter.next_look = time.monotonic()  # something may have happened since the claim
        waiter.not_before = waiter.next_look + waiter.pause
        waiter.idle = idle
        with self._lock:
            self._waiting.add(waiter)
        self._stir()
        if not stopping.is_set() and not self._closing:
            waiter.woken.wait()
        waiter.woken.clear()
        with self._lock:
            self._waiting.discard(waiter)

    def _stir(self) -> None:
        with self._lock:
            if self._kicked >= 0:
                with suppress(BlockingIOError):  # full: it will stir anyway
                    os.write(self._kicked, b"!")

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._watch()
            except AWAY as error:
                self._lose(error)
            except Exception as error:  # a look-out that has ended would leave its workers asleep
                logger.warning("look-out: %s: %s", type(error).__name__, error)
                self._lose(error)
        self._let_go()

    def _watch(self) -> None:
        """One round: look, wake whom it concerns, wait for the next reason to look."""
        sight = self._sight or self._connect()
        with self._lock:
            waiting = list(self._waiting)
        if sight is None:
            self._wait_blind(waiting)
            return
        now = time.monotonic()
        if not waiting:
            left = self._waited + _LINGER_SECONDS - now
            if left <= 0:
                sight.expect(False)
            self._nap(sight, left if left > 0 else None)
            return
        self._waited = now
        sight.expect(True)  # before the look: whoever appends after it will notify
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
        """Whether a notification came."""
        heard = sight.wait(seconds, self._kick)
        self._quiet_kick()
        return heard

    def _quiet_kick(self) -> None:
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
        # What is not committed yet is not worth a claim. One that failed does not know how far it looked.
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
            logger.warning("look-out: the database is back")
        self._lost, self._retry_pause = False, _RETRY_SECONDS[0]
        return self._sight

    def _lose(self, error: Exception) -> None:
        """Say so once; try again at once, and then more and more slowly."""
        if not self._lost:
            logger.warning("look-out: %s", error)
        self._lost = True
        had = self._sight is not None
        self._let_go()
        self._retry_at = 0.0 if had else time.monotonic() + self._retry_pause
        self._retry_pause = min(2 * self._retry_pause, _RETRY_SECONDS[1])

    def _let_go(self) -> None:
        sight, self._sight = self._sight, None
        if sight is not None:
            sight.close()

    def _wait_blind(self, waiting: list[Waiter]) -> None:
        """The database is away: workers whose time has come find out for themselves."""
        now = time.monotonic()
        for one in waiting:
            if now >= one.due:
                self._wake(one, None, "due")
        due = min([self._retry_at, *(one.due for one in waiting if now < one.due)])
        self._kick_poll.poll(math.ceil(1000 * max(0.0, due - time.monotonic())))
        self._quiet_kick()


@dataclass(frozen=True, slots=True)
class IdleWatch:
    """How a worker waits that has a look-out."""

    lookout: LookOut
    waiter: Waiter
    stopping: threading.Event

    def found(self) -> None:
        """There was work: look often again."""
        self.waiter.pause = LOOK_FIRST_SECONDS

    def wait(self, idle: Idle) -> None:
        """Return when a new claim may find something, or when it is time to end."""
        self.lookout.wait(self.waiter, idle, self.stopping)
