"""The engine's loop without its waiting: claim, handle and settle in the calling thread until nothing is due."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.core.lease import Settled
from penstock.declare.subscription import Subscription
from penstock.engine.handlers.state import LeaseState
from penstock.engine.settlement import LeaseSettlement
from penstock.engine.work import Work
from penstock.errors import AWAY, LeaseLost, PenstockError
from penstock.log.lease import Lease
from penstock.log.log import Log
from penstock.testing.inline import InlineHandlers

_LEASE = 1_000  # events; the time limit is checked between two leases


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain did. An event delivered several times counts each time; `released` events count no failure."""

    published: int = 0
    failed: int = 0  # to be retried
    dead: int = 0
    released: int = 0
    exceptions: tuple[BaseException, ...] = field(
        default=(), compare=False, repr=False
    )  # what handlers and settles raised


@dataclass(frozen=True, slots=True)
class Worked:
    """The result of one lease."""

    settled: Settled
    raised: list[BaseException]
    unavailable: bool


class InlineWorker:
    """A worker for one group that handles one lease at a time."""

    def __init__(self, log: Log, subscription: Subscription, claimed_by: str) -> None:
        self._log = log
        self._claimed_by = claimed_by
        self._handlers = InlineHandlers(subscription)
        self._limit = min(_LEASE, subscription.policy.batch_size)
        self.subscription = subscription

    def claim(self) -> Lease | None:
        """Claim a lease; None if nothing is due now."""
        one = self.subscription
        return self._log.claim(one.stream, one.group, limit=self._limit, claimed_by=self._claimed_by)

    def work(self, lease: Lease) -> Worked:
        """Handle and settle a lease; release it if anything but a handler fails."""
        work = Work(lease.events, lease.token, self._handlers.marks)
        try:
            if self.subscription.keyed and any(key is not None for key in lease.events.ordering_keys):
                work.state = LeaseState(lease.state())
            raised = self._handlers.run(work)
            return Worked(
                self._settle(LeaseSettlement(lease, work, opens_circuit=False), raised),
                raised,
                work.unavailable is not None,
            )
        except BaseException:
            with suppress(PenstockError):  # it may be lost; the test should see the first error
                lease.release()
            raise

    def _settle(self, settling: LeaseSettlement, raised: list[BaseException]) -> Settled:
        try:
            return settling.settle()
        except (LeaseLost, *AWAY):
            raise  # not caused by an event
        except Exception as error:
            self._limit = 1  # from now on one event at a time, so that the one that cannot be settled is alone
            raised.append(error)
            return settling.give_up(error)

    def start(self) -> None:
        """Call `on_start`."""
        self._handlers.start()

    def close(self) -> None:
        """Close the event loop, and call `on_stop`."""
        self._handlers.close()


def drain(workers: Iterable[InlineWorker], most_seconds: float) -> Drained:
    """Work in rounds, because groups emit to each other, until a round finds nothing to do."""
    give_up = time.monotonic() + most_seconds
    reachable = list(workers)
    done: list[Worked] = []
    before = -1
    while before < len(done):
        before = len(done)
        for worker in list(reachable):
            lease = worker.claim()
            if lease is None:
                continue
            if time.monotonic() > give_up:
                lease.release()
                raise TimeoutError(f"{worker.subscription.name} still has work after {most_seconds:g} s: {_sum(done)}")
            done.append(worker.work(lease))
            if done[-1].unavailable:
                reachable.remove(worker)
    return _sum(done)


def _sum(done: list[Worked]) -> Drained:
    settled = [one.settled for one in done]
    return Drained(
        sum(one.published for one in settled),
        sum(one.failed for one in settled),
        sum(one.dead for one in settled),
        sum(one.released for one in settled),
        tuple(error for one in done for error in one.raised),
    )
