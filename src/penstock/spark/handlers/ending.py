"""When a time slice ends: its time is up, there is nothing to do, or its run should stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from penstock.core.lease import Idle
from penstock.errors import PenstockError
from penstock.log.log import Log

_ASK_SECONDS = 1.0  # without news of what the run should do, before a slice asks


class SliceWorker(Protocol):
    """What works in a slice."""

    @property
    def log(self) -> Log: ...
    @property
    def idle(self) -> Idle | None: ...
    def work(self) -> None: ...
    def stop(self) -> None: ...


class Ending:
    """The check, between leases and while idle, whether a slice ends."""

    def __init__(self, worker: SliceWorker, seconds: float, patience: float, run: int | None) -> None:
        self._worker = worker
        self._end = time.monotonic() + seconds
        self._patience = patience  # seconds without work
        self._run = run
        self._idle_since: float | None = None
        self._heard = 0.0  # when it last heard what the run should do
        self.unwanted = False  # the run should be quiet, or stop
        self.stopped = False  # the run should stop
        self.tired = False  # there was nothing to do for too long

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._worker.idle is None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        self.tired = self._idle_since is not None and now - self._idle_since > self._patience
        return self.unwanted or self.tired or now >= self._end

    def follow(self, wanted: str) -> None:
        """Stop at once, or claim nothing new, if that is what the run should do."""
        self._heard = time.monotonic()
        if wanted == "stop":
            self._worker.stop()
        self.stopped = self.stopped or wanted == "stop"
        self.unwanted = wanted != "run"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Ask what the run should do whenever claims have not told for a while: handlers may take long."""
        if self._run is None:
            yield
            return
        self._ask(self._run)
        over = threading.Event()
        thread = threading.Thread(target=self._listen, args=(self._run, over), name="penstock-orders")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _listen(self, run: int, over: threading.Event) -> None:
        while not over.wait(max(0.0, self._heard + _ASK_SECONDS - time.monotonic())):
            if time.monotonic() >= self._heard + _ASK_SECONDS:
                self._ask(run)

    def _ask(self, run: int) -> None:
        self._heard = time.monotonic()
        with suppress(PenstockError):  # an outage is the worker's to report
            self.follow(self._worker.log.wanted_of_run(run) or "run")
