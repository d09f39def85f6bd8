"""Run an engine in the foreground: handle signals, emit progress, return the outcome."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.core.observe import RunProgressed, RunStopping, everyone
from penstock.declare.ingest import Ingest
from penstock.declare.job import JobType, ScheduledJob
from penstock.declare.subscription import Subscription
from penstock.engine.local.engine import LocalEngine
from penstock.engine.maintenance import Engine
from penstock.engine.outcome import Outcome
from penstock.engine.run_row import running
from penstock.log.log import Log

_TICK = 0.2


def run_local(
    log: Log,
    subscriptions: Sequence[Subscription],
    jobs: Sequence[JobType] = (),
    schedules: Sequence[ScheduledJob] = (),
    ingests: Sequence[Ingest] = (),
    *,
    until_drained: bool = False,
    app: str | None = None,
) -> Outcome:
    """Run a local engine until a signal or an operator stops it, or until drained."""
    orders = Orders()
    names = [one.name for each in (subscriptions, jobs, ingests) for one in each]
    with running(log, "local", names, app, orders.obey) as run:
        engine = LocalEngine(log, subscriptions, jobs, schedules, until_drained=until_drained, run=run)
        engine.ingest(ingests)
        return run_engine(engine, orders)


class Orders:
    """An operator's orders to a run (`run`, `quiet`, `stop`), passed to its engine once that has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = "run"
        self._engine: Engine | None = None
        self._stop: Callable[[], None] = lambda: None

    def obey(self, wanted: str) -> bool:
        """Follow an order, before or after `give_to`, in any thread; False if the engine stops anyway."""
        with self._lock:
            if self._engine is not None and self._engine.stopping:
                return False
            self._wanted = wanted
            self._pass_on()
            return True

    def give_to(self, engine: Engine, stop: Callable[[], None]) -> None:
        """Pass the last order, and all later ones, to this engine."""
        with self._lock:
            self._engine, self._stop = engine, stop
            self._pass_on()

    def _pass_on(self) -> None:
        if self._engine is None:
            return
        if self._wanted == "stop":
            self._stop()
        else:
            self._engine.quiet(self._wanted == "quiet")


def run_engine(engine: Engine, orders: Orders | None = None) -> Outcome:
    """Run until a signal or an order stops it, or until drained. Signals need the main thread."""
    notice = StopNotice()

    def stop() -> None:
        notice.stopping(engine.stop)

    with stopping_by_signal(stop):
        engine.start()
        if orders is not None:
            orders.give_to(engine, stop)
        while not engine.wait(_TICK):
            everyone.emit(RunProgressed(engine.snapshot()))
    everyone.emit(RunProgressed(engine.snapshot()))
    notice.wait()
    return Outcome(engine.snapshot(), dict(engine.paused), engine.seconds, engine.ingested())


class StopNotice:
    """The announcement to observers that a run is stopping.

    It is made in a thread: the caller may be a signal handler, and an observer may need a lock that the interrupted
    thread holds.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal may interrupt the thread that holds it
        self._thread: threading.Thread | None = None

    def stopping(self, stop: Callable[[], None]) -> None:
        """Stop, and emit `RunStopping`, once."""
        with self._lock:  # a run that ends at once waits for the notice, too
            stop()
            if self._thread is None:
                self._thread = threading.Thread(target=everyone.emit, args=(RunStopping(),), name="penstock-stopping")
                self._thread.start()

    def wait(self) -> None:
        """Return when all observers have been called."""
        with self._lock:  # a thread that has not started yet cannot be joined
            thread = self._thread
        if thread is not None:
            thread.join()


@contextmanager
def stopping_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Stop gracefully on SIGINT or SIGTERM; on a second one exit at once, which kills handler processes, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def on_signal(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
