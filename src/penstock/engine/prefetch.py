"""Claim and read the next leases while one is being worked on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from penstock.core.lease import Idle
from penstock.engine.handlers.state import LeaseState
from penstock.log.lease import Lease

_BUSY = 500  # events: after a lease this large, expect another
_MARGIN = 3  # times the duration of the last claim
_MARGIN_SECONDS = 0.05
_DEEP = 2  # leases to prefetch if reading takes longer than handling


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease, the state of its keys, and the seconds it took to claim and read them."""

    lease: Lease
    state: LeaseState
    seconds: float
    began_at: float  # seconds since 1970


class Prefetch:
    """Claims in background threads: one lease ahead, or two if reading takes longer than handling."""

    def __init__(self, claim: Callable[[int], Taken | Idle], group: str) -> None:
        self._claim = claim
        self._threads = ThreadPoolExecutor(_DEEP, f"penstock-ahead-{group}")
        self._coming: deque[Future[Taken | Idle]] = deque()
        self._more = False
        self._hurry = threading.Event()
        self._closing = False
        self._handled = 0.0  # seconds the last lease took to handle

    @property
    def more(self) -> bool:
        """Whether more events seemed to follow the last range."""
        return self._more

    def handled(self, seconds: float) -> None:
        """Note how long the last lease took."""
        self._handled = seconds

    def fetch(self, current: Taken, limit: Callable[[], int], claimed: int, seconds: float) -> None:
        """Claim what follows the current lease, if there seems to be more.

        The current lease takes about `seconds`: wait until shortly before its end, so as not to hoard work.
        """
        lease = current.lease
        if lease.is_range:  # a lease of retries says nothing about what follows
            self._more = len(lease) >= min(claimed, _BUSY) if lease.left is None else lease.left > 0
        if not self._more:
            return
        wanted = _DEEP if current.seconds > self._handled else 1
        delay = max(0.0, seconds - _MARGIN * current.seconds - _MARGIN_SECONDS)
        self._hurry.clear()
        while len(self._coming) < wanted:
            self._coming.append(self._threads.submit(self._later, delay, limit))

    def _later(self, delay: float, limit: Callable[[], int]) -> Taken | Idle:
        self._hurry.wait(delay)
        return Idle(None) if self._closing else self._claim(limit())

    def next(self) -> Taken | None:
        """Return the oldest prefetched lease, if any; a delayed claim starts at once."""
        self._hurry.set()
        while self._coming:
            found = self._coming.popleft().result()
            if isinstance(found, Taken):
                return found
        return None

    def take_all(self) -> list[Taken]:
        """Return all leases that were claimed and not used; cancel claims that have not begun."""
        found = []
        self._closing = True
        while (one := self.next()) is not None:
            found.append(one)
        self._closing = False
        return found

    def close(self) -> None:
        """Stop the threads; call `take_all` before."""
        self._threads.shutdown()
