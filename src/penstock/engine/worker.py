"""The loop of one group: claim, handle, settle; the next lease is read while this one is handled."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from penstock.core import codec, limits
from penstock.core.lease import Idle, Settled
from penstock.core.log_fields import about
from penstock.core.observe import Claimed, EventsFailed, LeaseEnded, Observers, ProcessesDied, Timing
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
_REST_SECONDS = 0.1  # between two checks whether to continue, while quiet
_RELOAD_SECONDS = 2.0  # between two attempts to reload handlers
_GONE_SECONDS = 5.0  # between two checks for a group that was deleted
_SETTLES = 2  # at a time: a lease of a few retries is handled before the previous one is settled


class Executor(Protocol):
    """Runs the events of a lease."""

    marks: Marks

    def start(self) -> bool:
        """Get ready; False to retry later."""

    def run(self, work: Work) -> None:
        """Run the untouched events, until the end or the stop flag."""

    def stop(self) -> None:
        """Free all resources."""


def executor_for(subscription: Subscription, modules: tuple[str, ...]) -> Executor:
    """Make the executor of a subscription; a child process imports these modules early."""
    if subscription.policy.isolation == "inline":
        return Inline(subscription)
    return Supervised(subscription, modules)


@dataclass(slots=True)
class Worker:
    """The worker of one group. One thread calls `run`; any thread may call `stop`.

    `work` may be called many times and keeps its processes between calls; `close` is final.
    """

    log: Log
    subscription: Subscription
    claimed_by: str
    heartbeat: Heartbeat
    observers: Observers
    until: Callable[[], bool] = lambda: False  # checked between two leases: whether to return
    idle: Idle | None = None  # the answer to the last claim, if it found nothing
    run_id: int | None = None  # the row in `runs` that leases refer to
    follow: Callable[[str], None] | None = None  # told with every claim what the run should do
    lookout: LookOut | None = None  # without one, an idle worker polls
    _stopping: threading.Event = field(default_factory=threading.Event)
    _quiet: threading.Event = field(default_factory=threading.Event)
    _waiter: Waiter = field(default_factory=Waiter)
    _executor: Executor = field(init=False)
    _prefetch: Prefetch = field(init=False)
    _settler: ThreadPoolExecutor = field(init=False)
    _settles: deque[Future[None]] = field(default_factory=deque)
    _came_back: threading.Event = field(default_factory=threading.Event)  # a settle left something to claim again
    _warned: str | None = None  # the last warning about an unavailable target
    _pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        policy = self.subscription.policy
        self._pace = Pace(policy.batch_seconds, policy.batch_size, least=policy.batch or 1)
        self._executor = executor_for(self.subscription, self.log.store.large_reads_need)
        self._prefetch = Prefetch(self._claim, self.subscription.group)
        self._settler = ThreadPoolExecutor(_SETTLES, f"penstock-settle-{self.subscription.group}")

    def stop(self) -> None:
        """Stop gracefully: running handlers may finish, the rest is released."""
        self._stopping.set()
        self._waiter.woken.set()
        self._executor.marks.stop[0] = 1

    def quiet(self, quiet: bool) -> None:
        """Finish what is claimed and claim nothing new; False to resume."""
        if quiet:
            self._quiet.set()
        else:
            self._quiet.clear()
        self._waiter.woken.set()

    def run(self) -> None:
        """Claim, handle and settle until stopped, then free all resources."""
        try:
            self.work()
        finally:
            self.close()

    def work(self) -> None:
        """Claim, handle and settle until stopped, or until `until` returns True."""
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
                    self._release_prefetched()
                limit = pace.limit
                found = self._prefetch.next() or self._claim_now(limit)
                self.idle = found if isinstance(found, Idle) else None
                if isinstance(found, Idle):
                    self._warn(found)
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
                self._release_prefetched()

    def close(self) -> None:
        """Free all resources; the worker cannot be used again."""
        self._prefetch.close()
        self._settler.shutdown()
        self._executor.stop()

    def again(self) -> None:
        """Allow `work` again after a stop."""
        self._stopping.clear()

    def _rest(self, seconds: float) -> None:
        """Hold no lease for these seconds, or until stopped."""
        self._wait_for_settles()
        self._release_prefetched()
        self._stopping.wait(seconds)

    def _waiting(self) -> IdlePoll | IdleWatch:
        if self.lookout is None:
            return IdlePoll(self.log, self._stopping, self.until)
        return IdleWatch(self.lookout, self._waiter, self._stopping)

    # --- claim ---------------------------------------------------------------------------------------------------

    def _claim_now(self, limit: int) -> Taken | Idle:
        """Claim; if there is nothing, wait for open settles, and claim again only if that may find something."""
        alone = self.subscription.exclusive  # an open lease of ours blocks its lane
        if self._settles and (self._prefetch.more or not alone):
            self._came_back.clear()
            found = self._claim(limit)
            if isinstance(found, Taken):
                return found
            self._wait_for_settles()
            saw_all = found.horizon > 0 and found.unavailable is None and not alone
            if saw_all and not self._came_back.is_set():
                return found
        self._wait_for_settles()
        return self._claim(limit)

    def _claim(self, limit: int) -> Taken | Idle:
        """Claim and read a lease with the state of its keys; heartbeats start at once. Retries during outages.

        Reading state ahead is safe: a lane has one lease at a time, so nobody else writes it.
        """

        def claim() -> Lease | Idle:
            group = self.subscription
            try:
                return self.log.try_claim_unread(
                    group.stream, group.group, limit=limit, claimed_by=self.claimed_by, run=self.run_id
                )
            except UnknownGroup:  # deleted during the run: whoever recreates it chooses its start
                return Idle(None, seconds=_GONE_SECONDS, unavailable=GONE)

        began, began_at = time.monotonic(), time.time()
        claimed = self._patiently(claim)
        if not isinstance(claimed, Lease):
            return claimed or Idle(None)
        self.heartbeat.keep(claimed, self.subscription.policy.lease_seconds)
        if self.follow is not None and claimed.wanted is not None:
            self.follow(claimed.wanted)
        took = time.monotonic() - began
        self.observers.emit(Claimed(self.subscription.name, claimed.id, claimed.row.members, took))
        found = self._patiently(claimed.read)  # retried separately: a repeated claim would be another lease
        if found is None:
            self._release(claimed)
            return Idle(None)
        state: dict[str, dict[str, Any]] | None = {}
        if self.subscription.keyed and any(key is not None for key in found.events.ordering_keys):
            state = self._patiently(found.state)
        if state is None:  # the lease is lost, or we are stopping during an outage
            self._release(found)
            return Idle(None)
        return Taken(found, LeaseState(state), time.monotonic() - began, began_at)

    def _warn(self, idle: Idle) -> None:
        """Warn that the target is unavailable or the group deleted, once per reason."""
        if idle.unavailable is not None and idle.unavailable != self._warned:
            wait = 0.0 if idle.seconds is None else idle.seconds
            why = GONE if idle.unavailable == GONE else f"the target is unavailable ({idle.unavailable})"
            logger.warning(
                "%s: %s; next try in %g s",
                *(self.subscription.name, why, round(wait, 1)),
                extra=about("unavailable", self.subscription.name),
            )
        self._warned = idle.unavailable

    def _release_prefetched(self) -> None:
        """Release prefetched leases, unblamed and due at once."""
        for taken in self._prefetch.take_all():
            self._release(taken.lease)

    def _release(self, lease: Lease) -> None:
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
            overtime = policy.batch_seconds * limits.OVERTIME
            with self.heartbeat.limit(lease, self._executor.marks, overtime, stuck, work.cancel):
                self._executor.run(work)
            seconds = time.monotonic() - (work.began or began)  # loading time says nothing about the pace
            self._prefetch.handled(seconds)
        except BaseException:  # a fault of the engine, not of a handler: blame no event
            self._release(lease)
            raise
        work.finish()
        marks = work.outcomes()
        ran = len(marks) - marks.count(Mark.UNTOUCHED)
        pace.ran(ran, seconds)
        if lease.is_range:
            pace.held(marks.count(Mark.HELD), ran)
        self._settle(lease, work, pace, Timing(taken.began_at, taken.seconds, seconds))

    # --- settle --------------------------------------------------------------------------------------------------

    def _settle(self, lease: Lease, work: Work, pace: Pace, timing: Timing) -> None:
        """Settle while the next lease is handled; wait if the result decides what to do next."""
        self._wait_for_settles(_SETTLES - 1)
        self._settles.append(self._settler.submit(self._finish, lease, work, pace, timing))
        if work.unavailable is not None or work.deaths:
            self._wait_for_settles()
            self._release_prefetched()  # the group may now be paused, or its circuit open: claim again

    def _wait_for_settles(self, but: int = 0) -> None:
        while len(self._settles) > but:
            self._settles.popleft().result()

    def _finish(self, lease: Lease, work: Work, pace: Pace, timing: Timing) -> None:
        settling, began = LeaseSettlement(lease, work), time.monotonic()
        settled = self._patiently(lambda: self._report(settling, pace))
        self.heartbeat.drop(lease)
        if settled is None or settled.failed or settled.released:
            self._came_back.set()
        name = self.subscription.name
        if settled is not None:
            timing = replace(timing, settle_seconds=time.monotonic() - began)
            self.observers.emit(LeaseEnded(name, lease.id, settled, work.events, timing))
            if work.failed or work.dead:
                self.observers.emit(EventsFailed(name, work.events, {**work.failed, **work.dead}, lease.id))
        if work.deaths:
            self.observers.emit(ProcessesDied(name, work.deaths))

    def _report(self, settling: LeaseSettlement, pace: Pace) -> Settled:
        """Settle; if that is impossible, release the lease and claim smaller ones until the culprit is alone."""
        try:
            return settling.settle()
        except (LeaseLost, *AWAY):
            raise
        except Exception as error:
            logger.warning(
                "%s: the settle failed: %s: %s",
                *(self.subscription.name, type(error).__name__, error),
                extra=about(
                    "settle_failed", self.subscription.name, lease=settling.lease_id, code=codec.error_code(error)
                ),
            )
            pace.shrink(settling.count)
            return settling.give_up(error)

    def _patiently(self, do: Callable[[], T]) -> T | None:
        return patiently(do, self.subscription.name, self.observers, self._stopping)
