"""The loop of one group: claim, handle, settle; the next lease is read while this one is worked on."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from penstock.core import limits
from penstock.core.lease import Idle, Settled
from penstock.core.observe import Claimed, EventsFailed, LeaseEnded, Observers, ProcessesDied
from penstock.declare.subscription import Subscription
from penstock.engine.drain import GONE
from penstock.engine.handlers.state import LeaseState
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.idle import IdlePoll
from penstock.engine.isolation.inline import Inline
from penstock.engine.isolation.marks import Mark, Marks
from penstock.engine.isolation.supervised import Supervised
from penstock.engine.lookout import IdleWatch, LookOut, Waiter
from penstock.engine.outage import patiently
from penstock.engine.pace import Pace
from penstock.engine.prefetch import Prefetch, Taken
from penstock.engine.settlement import LeaseSettlement
from penstock.engine.work import Work
from penstock.errors import AWAY, LeaseLost, UnknownGroup
from penstock.log.lease import Lease
from penstock.log.log import Log

T = TypeVar("T")
logger = logging.getLogger("penstock")
_REST_SECONDS = 0.1  # between two looks of a quiet worker at whether to go on
_RELOAD_SECONDS = 2.0  # between two tries to load handlers again
_GONE_SECONDS = 5.0  # between two looks for a group that was deleted
_SETTLES = 2  # at a time: a lease of a few retries is handled before the one before it is settled


class Executor(Protocol):
    """Runs the events of a lease."""

    marks: Marks

    def start(self) -> bool:
        """Have everything ready; False if that is to be tried again later."""

    def run(self, work: Work) -> None:
        """Run what is untouched until the end, or until the stop flag is up."""

    def stop(self) -> None:
        """Give everything back."""


def executor_for(subscription: Subscription, modules: tuple[str, ...]) -> Executor:
    """Where the handlers of a subscription run; a child loads these modules beforehand."""
    if subscription.policy.isolation == "inline":
        return Inline(subscription)
    return Supervised(subscription, modules)


@dataclass(slots=True)
class Worker:
    """Works for one group until it is told to stop. `run` is called by one thread, `stop` by any.

    `work` may be called again and again, and finds everything warm; `close` ends it for good.
    """

    log: Log
    subscription: Subscription
    claimed_by: str
    heartbeat: Heartbeat
    observers: Observers
    until: Callable[[], bool] = lambda: False  # asked between two leases: whether to end here
    idle: Idle | None = None  # what the last look said, if it found nothing
    run_id: int | None = None  # whose row in `runs` the leases name
    lookout: LookOut | None = None  # who watches the log for us; without one we do it ourselves
    _stopping: threading.Event = field(default_factory=threading.Event)
    _quiet: threading.Event = field(default_factory=threading.Event)
    _waiter: Waiter = field(default_factory=Waiter)
    _executor: Executor = field(init=False)
    _prefetch: Prefetch = field(init=False)
    _settler: ThreadPoolExecutor = field(init=False)
    _settles: deque[Future[None]] = field(default_factory=deque)
    _brought: threading.Event = field(default_factory=threading.Event)  # a settle left something to be claimed again
    _told: str | None = None  # what was last said about a target that is down
    _pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        policy = self.subscription.policy
        self._pace = Pace(policy.batch_seconds, policy.batch_size, least=policy.batch or 1)
        self._executor = executor_for(self.subscription, self.log.store.large_reads_need)
        self._prefetch = Prefetch(self._claim, self.subscription.group)
        self._settler = ThreadPoolExecutor(_SETTLES, f"penstock-settle-{self.subscription.group}")

    def stop(self) -> None:
        """End gracefully: running handlers get their time, what was never started goes back."""
        self._stopping.set()
        self._waiter.woken.set()
        self._executor.marks.stop[0] = 1

    def quiet(self, quiet: bool) -> None:
        """Finish what is claimed and claim nothing new; or go on."""
        if quiet:
            self._quiet.set()
        else:
            self._quiet.clear()
        self._waiter.woken.set()

    def run(self) -> None:
        """Claim, handle and settle until stopped, and give everything back."""
        try:
            self.work()
        finally:
            self.close()

    def work(self) -> None:
        """Claim, handle and settle until stopped, or until `until` says so."""
        pace = self._pace
        waiting = self._waiting()
        try:
            self._executor.start()
            while not self._stopping.is_set() and not self.until():
                if self._quiet.is_set():
                    self._rest(_REST_SECONDS)
                    continue
                if not self._executor.start():
                    self._rest(_RELOAD_SECONDS)
                    continue
                if pace.careful:
                    self._wait_for_settles()
                    self._give_back_ahead()
                limit = pace.limit
                found = self._prefetch.next() or self._claim_now(limit)
                self.idle = found if isinstance(found, Idle) else None
                if isinstance(found, Idle):
                    self._tell(found)
                    waiting.wait(found)
                    continue
                waiting.found()
                pace.saw(found.lease.left)
                if not pace.careful:
                    expected = pace.seconds_for(len(found.lease))
                    self._prefetch.fetch(found, lambda: pace.limit, claimed=limit, seconds=expected)
                self._work(found, pace)
        finally:
            try:
                self._wait_for_settles()
            finally:
                self._give_back_ahead()

    def close(self) -> None:
        """Nothing more is to be done."""
        self._prefetch.close()
        self._settler.shutdown()
        self._executor.stop()

    def again(self) -> None:
        """What a stop has ended may begin again."""
        self._stopping.clear()

    def _rest(self, seconds: float) -> None:
        """Hold nothing for a while, or until told to stop."""
        self._wait_for_settles()
        self._give_back_ahead()
        self._stopping.wait(seconds)

    def _waiting(self) -> IdlePoll | IdleWatch:
        if self.lookout is None:
            return IdlePoll(self.log, self._stopping, self.until)
        return IdleWatch(self.lookout, self._waiter, self._stopping)

    # --- claim ---------------------------------------------------------------------------------------------------

    def _claim_now(self, limit: int) -> Taken | Idle:
        """What there is; if there is nothing, what the last settles bring. One look, where they bring nothing."""
        alone = self.subscription.exclusive  # our own lease keeps us from what its lane has
        if self._settles and (self._prefetch.more or not alone):
            self._brought.clear()
            found = self._claim(limit)
            if isinstance(found, Taken):
                return found
            self._wait_for_settles()
            saw_all = found.horizon > 0 and found.unavailable is None and not alone
            if saw_all and not self._brought.is_set():
                return found
        self._wait_for_settles()
        return self._claim(limit)

    def _claim(self, limit: int) -> Taken | Idle:
        """A lease, kept alive from its first moment on, with the state of its keys; waits while the database is away.

        The state is safe to read ahead: a lane has one lease at a time, so nobody else writes what was read.
        """

        def claim() -> Lease | Idle:
            group = self.subscription
            try:
                return self.log.try_claim_unread(
                    group.stream, group.group, limit=limit, claimed_by=self.claimed_by, run=self.run_id
                )
            except UnknownGroup:  # somebody has deleted it while we run; a new one starts where its maker wants
                return Idle(None, seconds=_GONE_SECONDS, unavailable=GONE)

        began = time.monotonic()
        claimed = self._patiently(claim)
        if not isinstance(claimed, Lease):
            return claimed or Idle(None)
        self.heartbeat.keep(claimed, self.subscription.policy.lease_seconds)
        self.observers.emit(Claimed(self.subscription.name, claimed.id, claimed.row.members))
        found = self._patiently(claimed.read)  # by itself: a claim that is repeated would be another lease
        if found is None:
            self._give_back(claimed)
            return Idle(None)
        state: dict[str, dict[str, Any]] | None = {}
        if self.subscription.keyed and any(key is not None for key in found.events.ordering_keys):
            state = self._patiently(found.state)
        if state is None:  # the lease is gone, or we are stopping and the database is away
            self._give_back(found)
            return Idle(None)
        return Taken(found, LeaseState(state), time.monotonic() - began)

    def _tell(self, idle: Idle) -> None:
        """Say once that the target is down or the group is gone, and once more when it says something else."""
        if idle.unavailable is not None and idle.unavailable != self._told:
            wait = 0.0 if idle.seconds is None else idle.seconds
            why = GONE if idle.unavailable == GONE else f"the target is unavailable ({idle.unavailable})"
            logger.warning("%s: %s; next try in %g s", self.subscription.name, why, round(wait, 1))
        self._told = idle.unavailable

    def _give_back_ahead(self) -> None:
        """What was read ahead and never started goes back, unblamed and due at once."""
        for taken in self._prefetch.take_all():
            self._give_back(taken.lease)

    def _give_back(self, lease: Lease) -> None:
        self.heartbeat.drop(lease)
        released = self._patiently(lease.release)
        if released is not None:
            self.observers.emit(LeaseEnded(self.subscription.name, lease.id, released))

    # --- handle --------------------------------------------------------------------------------------------------

    def _work(self, taken: Taken, pace: Pace) -> None:
        policy, lease = self.subscription.policy, taken.lease
        work = Work(lease.events, lease.token, self._executor.marks, taken.state)
        try:
            if self._stopping.is_set():
                self._executor.marks.stop[0] = 1
            began = time.monotonic()
            stuck = policy.timeout_seconds if policy.isolation == "inline" else None
            with self.heartbeat.limit(lease, self._executor.marks, policy.batch_seconds * limits.OVERTIME, stuck):
                self._executor.run(work)
            seconds = time.monotonic() - (work.began or began)  # a process that had to load says nothing about the pace
            self._prefetch.handled(seconds)
        except BaseException:  # the engine's own trouble, not the handlers': nobody is blamed
            self._give_back(lease)
            raise
        work.finish()
        marks = work.outcomes()
        ran = len(marks) - marks.count(Mark.UNTOUCHED)
        pace.ran(ran, seconds)
        if lease.is_range:
            pace.held(marks.count(Mark.HELD), ran)
        self._settle(lease, work, pace)

    # --- settle --------------------------------------------------------------------------------------------------

    def _settle(self, lease: Lease, work: Work, pace: Pace) -> None:
        """Settle beside the next leases; at once where the answer says how to go on."""
        self._wait_for_settles(_SETTLES - 1)
        self._settles.append(self._settler.submit(self._finish, lease, work, pace))
        if work.unavailable is not None or work.deaths:
            self._wait_for_settles()
            self._give_back_ahead()  # the group may be paused by now, or its circuit open: look again before going on

    def _wait_for_settles(self, but: int = 0) -> None:
        while len(self._settles) > but:
            self._settles.popleft().result()

    def _finish(self, lease: Lease, work: Work, pace: Pace) -> None:
        settling = LeaseSettlement(lease, work)
        settled = self._patiently(lambda: self._report(settling, pace))
        self.heartbeat.drop(lease)
        if settled is None or settled.failed or settled.released:
            self._brought.set()
        name = self.subscription.name
        if settled is not None:
            self.observers.emit(LeaseEnded(name, lease.id, settled))
            if work.failed or work.dead:
                self.observers.emit(EventsFailed(name, work.events, {**work.failed, **work.dead}))
        if work.deaths:
            self.observers.emit(ProcessesDied(name, work.deaths))

    def _report(self, settling: LeaseSettlement, pace: Pace) -> Settled:
        """Settle; where that is impossible, find the event that makes it so in smaller and smaller leases."""
        try:
            return settling.settle()
        except (LeaseLost, *AWAY):
            raise
        except Exception as error:
            logger.warning("%s: the settle failed: %s: %s", self.subscription.name, type(error).__name__, error)
            pace.shrink(settling.count)
            return settling.give_up(error)

    def _patiently(self, do: Callable[[], T]) -> T | None:
        return patiently(do, self.subscription.name, self.observers, self._stopping)
