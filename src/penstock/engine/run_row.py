"""The row of a run in `runs`: written at its start, kept alive by a thread, and closed with an outcome."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata

from penstock.core import limits, log_fields
from penstock.core.log_fields import about
from penstock.core.observe import RunBegan, RunEnded, everyone
from penstock.errors import AWAY, PenstockError
from penstock.log.log import Log
from penstock.log.runs import NewRun

logger = logging.getLogger("penstock")
_END_TRIES = 3
Obey = Callable[[str], bool]  # follows an order to a run; False if that is no news, because the run stops anyway


class RunRow:
    """One row of `runs`. Errors are logged, and never stop the run."""

    def __init__(self, log: Log, run: int, obey: Obey) -> None:
        self.id = run
        self._log = log
        self._obey = obey
        self._wanted = "run"
        self._away = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-run", daemon=True)

    def start(self) -> None:
        """Start the heartbeat; it also delivers operators' orders to `obey`."""
        self._thread.start()

    def end(self, outcome: str | None) -> None:
        """Stop the heartbeat and write the outcome; None leaves that to another process."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(limits.RUN_BEAT_SECONDS)
        for _ in range(_END_TRIES if outcome is not None else 0):
            try:
                self._log.end_run(self.id, str(outcome))
                return
            except AWAY as error:
                words = "run %d: its outcome could not be stored: %s"
                logger.warning(words, self.id, error, extra=about("run_row", run=self.id, code=error.code))
            except PenstockError as error:
                logger.warning("run %d: %s", self.id, error, extra=about("run_row", run=self.id, code=error.code))
                return

    def _run(self) -> None:
        while not self._ended.wait(limits.RUN_BEAT_SECONDS):
            try:
                self._follow(self._log.beat_run(self.id))
                self._away = False
            except PenstockError as error:  # logged once: the workers report outages, too
                if not self._away:
                    words, fields = "run %d: no heartbeat: %s", about("run_row", run=self.id, code=error.code)
                    logger.warning(words, self.id, error, extra=fields)
                self._away = True

    def _follow(self, wanted: str) -> None:
        if wanted != self._wanted and not self._ended.is_set():
            self._wanted = wanted
            if self._obey(wanted):
                words, fields = "run %d: an operator asked it to %s", about("ordered", run=self.id, wanted=wanted)
                logger.warning(words, self.id, _VERBS[wanted], extra=fields)


def _version() -> str:
    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:  # not installed: run from a source folder
        return "unknown"


_VERBS = {"run": "continue", "quiet": "claim nothing new", "stop": "stop"}


def begin(log: Log, engine: str, groups: Sequence[str], app: str | None = None) -> int | None:
    """Write the row; None, and a warning, if the role may not."""
    host, pid = socket.gethostname(), os.getpid()
    new = NewRun(f"{host}/{pid}", app, engine, _version(), host, pid, groups)
    try:
        return log.start_run(new)
    except AWAY:
        raise
    except PenstockError as error:
        words = "this run has no row in `runs` and cannot be stopped with `penstock stop`: %s"
        logger.warning(words, error, extra=about("run_row", code=error.code))
        return None


@contextmanager
def sharing(log: Log, run: int | None, obey: Obey) -> Iterator[None]:
    """Follow the orders to a run in one of its pool processes; the foreground process closes the row."""
    log_fields.belongs_to(run)
    row = None if run is None else RunRow(log, run, obey)
    if row is not None:
        row.start()
    try:
        yield
    finally:
        if row is not None:
            row.end(None)


@contextmanager
def running(log: Log, engine: str, groups: Sequence[str], app: str | None, obey: Obey) -> Iterator[int | None]:
    """Keep a row for the duration of the block; its outcome is `stopped`, or the error that ended it."""
    run = begin(log, engine, groups, app)
    row = None if run is None else RunRow(log, run, obey)
    log_fields.belongs_to(run)
    if row is not None:
        row.start()
    everyone.emit(RunBegan(engine, groups, run))
    outcome = "stopped"
    try:
        yield run
    except BaseException as error:
        outcome = f"failed: {getattr(error, 'code', type(error).__name__)}"
        raise
    finally:
        everyone.emit(RunEnded(outcome))
        if row is not None:
            row.end(outcome)
        log_fields.belongs_to(None)
