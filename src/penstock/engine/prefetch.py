"""Leases that are claimed and read while another one is worked on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from penstock.core.lease import Idle
from penstock.engine.handlers.state import LeaseState
from penstock.log.lease import Lease

_BUSY = 500  # events: a lease of a lane that is so large will not be the last
_MARGIN = 3  # times what the last claim took
_MARGIN_SECONDS = 0.05
_DEEP = 2  # leases ahead where reading takes longer than handling


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease, the state of its keys as it was when it was claimed, and how long all that took."""

    lease: Lease
    state: LeaseState
    seconds: float


class Prefetch:
    """Claims in threads of its own. One lease ahead is enough, unless it takes longer to read one than to handle it."""

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
        """Whether it looked as if there were more behind the last range."""
        return self._more

    def handled(self, seconds: float) -> None:
        """The last lease took so long."""
        self._handled = seconds

    def fetch(self, behind: Taken, limit: Callable[[], int], claimed: int, seconds: float) -> None:
        """Claim what comes behind a lease, if it looks as if there were more: a trickle is not worth it.

        The lease in hand takes about so many `seconds`: not earlier than needed, so that nobody hoards work.
        """
        lease = behind.lease
        if lease.is_range:  # a few retries in between say nothing about what comes behind
            self._more = len(lease) >= min(claimed, _BUSY) if lease.left is None else lease.left > 0
        if not self._more:
            return
        wanted = _DEEP if behind.seconds > self._handled else 1
        delay = max(0.0, seconds - _MARGIN * behind.seconds - _MARGIN_SECONDS)
        self._hurry.clear()
        while len(self._coming) < wanted:
            self._coming.append(self._threads.submit(self._later, delay, limit))

    def _later(self, delay: float, limit: Callable[[], int]) -> Taken | Idle:
        self._hurry.wait(delay)
        return Idle(None) if self._closing else self._claim(limit())

    def next(self) -> Taken | None:
        """The lease that was claimed first, if there is one."""
        self._hurry.set()
        while self._coming:
            found = self._coming.popleft().result()
            if isinstance(found, Taken):
                return found
        return None

    def take_all(self) -> list[Taken]:
        """Whatever was claimed and not handed out; what has not begun does not begin."""
        found = []
        self._closing = True
        while (one := self.next()) is not None:
            found.append(one)
        self._closing = False
        return found

    def close(self) -> None:
        """End its threads; nothing may be coming any more."""
        self._threads.shutdown()
