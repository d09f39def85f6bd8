"""What the log needs somebody to do now and then, where only HTTP workers are: schedules, reap, and the rounds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from penstock.core.codec import error_code
from penstock.core.log_fields import about
from penstock.engine.outage import try_once
from penstock.engine.rounds import rounds
from penstock.log.log import Log

logger = logging.getLogger("penstock")
_TICK_SECONDS: Final = 1.0
_REAP_SECONDS: Final = 5.0


class Upkeep:
    """A thread that does it as long as the block lasts. Any number of processes may: each run is submitted once."""

    def __init__(self, log: Log, tick_seconds: float = _TICK_SECONDS, reap_seconds: float = _REAP_SECONDS) -> None:
        self._log = log
        self._tick_seconds = tick_seconds
        self._reap_seconds = reap_seconds
        self._said: dict[str, str] = {}  # the last trouble with each
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-upkeep", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        next_reap = 0.0
        background = rounds(self._log, self._reap_seconds)
        while not self._stopping.wait(self._tick_seconds):
            self._try(self._log.tick_schedules, "schedules")
            if time.monotonic() >= next_reap:
                self._try(self._log.reap, "reap")
                next_reap = time.monotonic() + self._reap_seconds
            for one in background:
                one.tick()

    def _try(self, do: Callable[[], Any], name: str) -> None:
        """Do one thing. What goes wrong is said once, and does not keep the other thing from being done."""
        try:
            try_once(do, name)
        except Exception as error:
            words = f"{name}: {type(error).__name__}: {error}"
            if words != self._said.get(name):
                self._said[name] = words
                logger.warning("http: %s", words, extra=about("round_failed", code=error_code(error), round=name))
