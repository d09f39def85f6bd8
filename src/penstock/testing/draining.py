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

_LEASE = 1_000  # events; the time limit is looked at between two leases


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain did. An event that came several times counts each time; `released` ones were given back unblamed."""

    published: int = 0
    failed: int = 0  # and to be tried again
    dead: int = 0
    released: int = 0
    exceptions: tuple[BaseException, ...] = field(
        default=(), compare=False, repr=False
    )  # what handlers and settles raised


@dataclass(frozen=True, slots=True)
class Worked:
    """What came of one lease."""

    settled: Settled
    raised: list[BaseException]
    unavailable: bool


class InlineWorker:
    """Works for one group, a lease at a time."""

    def __init__(self, log: Log, subscription: Subscription, claimed_by: str) -> None:
        self._log = log
        self._claimed_by = claimed_by
        self._handlers = InlineHandlers(subscription)
        self._limit = min(_LEASE, subscription.policy.batch_size)
        self.subscription = subscription

    def claim(self) -> Lease | None:
        """A lease, if anything is due now."""
        one = self.subscription
        return self._log.claim(one.stream, one.group, limit=self._limit, claimed_by=self._claimed_by)

    def work(self, lease: Lease) -> Worked:
        """Handle and settle; whatever goes wrong beside the handlers, the lease is given back."""
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
            with suppress(PenstockError):  # it may be lost; what went wrong first is what the test should see
                lease.release()
            raise

    def _settle(self, settling: LeaseSettlement, raised: list[BaseException]) -> Settled:
        try:
            return settling.settle()
        except (LeaseLost, *AWAY):
            raise  # nothing that an event could be blamed for
        except Exception as error:
            self._limit = 1  # from here on one at a time, so that the one that makes it impossible is alone with it
            raised.append(error)
            return settling.give_up(error)

    def close(self) -> None:
        """Give the event loop back."""
        self._handlers.close()


def drain(workers: Iterable[InlineWorker], most_seconds: float) -> Drained:
    """Round after round, because groups emit to each other, until one finds nothing to do."""
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
