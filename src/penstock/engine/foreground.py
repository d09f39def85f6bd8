"""Run an engine in the foreground: signals, a chance to show progress, and what came of it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.core.observe import RunProgressed, RunStopping, everyone
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
    *,
    until_drained: bool = False,
    app: str | None = None,
) -> Outcome:
    """Run a local engine in the foreground."""
    orders = Orders()
    with running(log, "local", [one.name for one in subscriptions], app, orders.obey) as run:
        engine = LocalEngine(log, subscriptions, until_drained=until_drained, run=run)
        return run_engine(engine, orders)


class Orders:
    """What an operator wants of a run, passed on to its engine once there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = "run"
        self._engine: Engine | None = None
        self._stop: Callable[[], None] = lambda: None

    def obey(self, wanted: str) -> None:
        """Called by the thread that hears it."""
        with self._lock:
            self._wanted = wanted
            self._pass_on()

    def give_to(self, engine: Engine, stop: Callable[[], None]) -> None:
        """The engine runs."""
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
    """Run until stopped by a signal, or until drained. Call it in the main thread if signals are to be heard."""
    said = StopNotice()

    def stop() -> None:
        engine.stop()
        said.stopping()

    with stopping_by_signal(stop):
        engine.start()
        if orders is not None:
            orders.give_to(engine, stop)
        while not engine.wait(_TICK):
            everyone.emit(RunProgressed(engine.snapshot()))
    everyone.emit(RunProgressed(engine.snapshot()))
    said.wait()
    return Outcome(engine.snapshot(), dict(engine.paused), engine.seconds)


class StopNotice:
    """Tells observers that a run is stopping. A signal handler calls it, and an observer may need a lock that the
    interrupted thread holds: so a thread does it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def stopping(self) -> None:
        """Tell them, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=everyone.emit, args=(RunStopping(),), name="penstock-stopping")
            self._thread.start()

    def wait(self) -> None:
        """Return when everybody has heard it."""
        if self._thread is not None:
            self._thread.join()


@contextmanager
def stopping_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM stop gracefully; a second one exits at once, and handlers' processes go with us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def heard(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        stop()

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
